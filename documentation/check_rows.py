"""Formats the rows of `railwright check` for docs/reference/check.md.

Also formats the webhook entries with which the command compares those of a cluster.
"""

import json

import yaml

from documentation import markdown
from railwright.cli.checking import command, rows

FOLDER = markdown.ROOT / "railwright" / "cli" / "checking"
_ADMISSION = markdown.ROOT / "manifests" / "base" / "admission.yaml"
_UNCOMPARED = frozenset({"matchPolicy", "sideEffects", "admissionReviewVersions"})


def format_rows() -> str:
    """Return a section of Markdown for each row of `check`."""
    return "\n\n".join(
        f"### {row.anchor}\n\n{f'**{row.name}.** {row.text}'.rstrip()}\n\nFix: {rows.fill_placeholders(row.fix)}"
        for row in command.ROWS.values()
    )


def format_webhook_entries() -> str:
    """Return the entries of the shipped webhook configurations as JSON, which `railwright check` reads."""
    documents = yaml.safe_load_all(_ADMISSION.read_text(encoding="utf-8"))
    entries = [
        {key: value for key, value in hook.items() if key not in _UNCOMPARED}
        for document in documents
        for hook in document["webhooks"]
    ]
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n"
