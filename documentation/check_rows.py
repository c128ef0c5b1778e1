"""Formats the rows of `railwright check` for docs/reference/check.md: the explanation of each, and what it reads.

Writes the entries of the webhook configurations for the command, which compares those of a cluster with them.
"""

import json
from collections.abc import Iterator

import yaml

from documentation import markdown
from railwright.cli.checking import check_rows, snapshots
from railwright.fabric import names

FOLDER = markdown.ROOT / "railwright" / "cli" / "checking"
_ADMISSION = markdown.ROOT / "manifests" / "base" / "admission.yaml"
_UNCOMPARED = frozenset({"matchPolicy", "sideEffects", "admissionReviewVersions"})
# what stands for several sources, or is no list of objects
_OTHERS = {
    "everything": "what all rows read",
    "workloads": "`list` for each kind of workload that railwright knows",
    snapshots.DRY_RUNS: "`create pods` in the namespace of the dry run",
    snapshots.NAMESPACED_PODS: "`list pods` in opted-in namespaces",
    snapshots.PERMISSIONS: "`create selfsubjectaccessreviews`",
    snapshots.SERVER_PERMISSIONS: "`create subjectaccessreviews.authorization.k8s.io -A`",
}
_RIGHTS = {source.name: f"`{source.right.format(namespace=names.NAMESPACE)}`" for source in snapshots.SOURCES}


def format_rows(markdown: str) -> str:
    """Return a section for each row in the text of the table."""
    sections = []
    for anchor, fields in check_rows.parse(markdown).items():
        reads, uses = (list(_list_rights(fields.get(key, ""))) for key in ("reads", "uses"))
        rights = [f"Reads {', '.join(reads)}."] if reads else []
        rights += [f"Also reads, if you may: {', '.join(uses)}."] if uses else []
        sections.append(f"### {anchor}\n\n{fields['text']}\n\n{' '.join(rights)}")
    return "\n\n".join(sections)


def _list_rights(sources: str) -> Iterator[str]:
    for source in sources.split(", ") if sources else ():
        yield _OTHERS.get(source) or _RIGHTS[source]


def format_entries() -> str:
    """Return the file that `railwright check` reads: the entries of the shipped webhook configurations."""
    documents = yaml.safe_load_all(_ADMISSION.read_text(encoding="utf-8"))
    entries = [
        {key: value for key, value in hook.items() if key not in _UNCOMPARED}
        for document in documents
        for hook in document["webhooks"]
    ]
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n"
