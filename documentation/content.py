"""Lists the generated parts of pages and the files that contain them. Writes nothing.

Generated parts begin with `<!-- generated: NAME -->` and end with `<!-- end of generated -->`.
"""

import functools
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping

from documentation import examples, markdown, policy, reference, rules
from railwright.cli import scheduler_configuration as configuration
from railwright.fabric import names
from railwright.fabric.reasons import codes

DOCS = markdown.ROOT / "docs"
_WEBHOOK_ENTRIES = markdown.ROOT / "railwright" / "cli" / "checking" / "webhook_entries.json"
_SCHEDULERS = markdown.ROOT / "manifests" / "examples" / "schedulers"
_POOLS = (*(f"nvidia.com/mlx5_{number}" for number in range(4)), names.RAILS)  # of the shipped configurations


def copy_glossary() -> str:
    """Return the table of the section Glossary of ARCHITECTURE.md."""
    text = (markdown.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.partition("\n## Glossary\n")[2].partition("\n## ")[0].strip()


FORMATTERS: Mapping[str, Callable[[], str]] = {
    "policy-reference": policy.format_reference,
    "commands": reference.format_commands,
    "lint-rules": rules.format_rules,
    "reason-codes": functools.partial(reference.format_reason_codes, codes.PlacementCode),
    "rejection-codes": functools.partial(reference.format_reason_codes, codes.RejectionCode),
    "admission-codes": functools.partial(reference.format_reason_codes, codes.AdmissionCode),
    "variable-codes": functools.partial(reference.format_reason_codes, codes.VariableCode),
    "gang-states": reference.format_gang_states,
    "metrics": reference.format_metrics,
    "glossary": copy_glossary,
    "permissions": reference.format_permissions,
    "label": examples.format_pod_diff,
    "cloud-profiles": examples.format_profiles,
    "published-manifests": examples.summarize_reviewed_manifests,
    "common-refusals": examples.format_mistakes,
    "tested-versions": reference.format_versions,
    "check-rows": reference.format_check_rows,
}


_PART = re.compile(r"<!-- generated: (?P<name>\S+) -->\n.*?<!-- end of generated -->", re.DOTALL)


def fill_generated_parts(page: str) -> str:
    """Return the page with all generated parts updated. Raises LookupError for an unknown part."""

    def format_part(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in FORMATTERS:
            raise LookupError(f"`<!-- generated: {name} -->` names no generated part; use {', '.join(FORMATTERS)}")
        return f"<!-- generated: {name} -->\n\n{FORMATTERS[name]().strip()}\n\n<!-- end of generated -->"

    return _PART.sub(format_part, page)


def list_generated_files() -> Iterator[tuple[pathlib.Path, str]]:
    """Yield the path and expected text of each file that is generated, fully or in parts."""
    for path in (markdown.ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        if (filled := fill_generated_parts(text)) != text or "<!-- generated: " in text:
            yield path, filled
    yield (
        _SCHEDULERS / "kube-scheduler.yaml",
        configuration.format_kube_scheduler(_POOLS, configuration.ExtenderAddress()),
    )
    yield _SCHEDULERS / "volcano-scheduler.yaml", configuration.format_volcano(_POOLS)
    yield _WEBHOOK_ENTRIES, reference.format_webhook_entries()


def list_outdated_files() -> dict[pathlib.Path, str]:
    """Return path and expected text of each outdated file. `python -m documentation` writes them."""
    return {
        path: text
        for path, text in list_generated_files()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
