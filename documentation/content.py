"""Lists the generated parts of the documentation and the files that contain them. Writes nothing."""

import functools
import pathlib
from collections.abc import Iterator, Mapping

from documentation import (
    check_rows,
    examples,
    markdown,
    permissions,
    policy,
    reference,
    rules,
    scheduler_gangs,
    tested_versions,
)
from railwright.fabric.reasons import codes

DOCS = markdown.ROOT / "docs"
_ROWS = check_rows.FOLDER / "rows.md"


def copy_glossary() -> str:
    """Return the table of the section Glossary of ARCHITECTURE.md."""
    text = (markdown.ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.partition("\n## Glossary\n")[2].partition("\n## ")[0].strip()


MAKERS: Mapping[str, markdown.Maker] = {
    "policy-reference": policy.format_reference,
    "commands": reference.list_commands,
    "lint-overview": rules.format_overview,
    "lint-rules": rules.format_all,
    "reason-codes": reference.list_codes,
    "rejection-codes": functools.partial(reference.format_codes, codes.RejectionCode),
    "admission-codes": functools.partial(reference.format_codes, codes.AdmissionCode),
    "variable-codes": reference.list_variables,
    "events": reference.list_events,
    "metrics": reference.format_metrics,
    "glossary": copy_glossary,
    "permissions": permissions.format_permissions,
    "file": examples.include_file,
    "admission": examples.show_admission,
    "cloud-profiles": examples.list_profiles,
    "published-manifests": examples.list_reviewed,
    "common-refusals": examples.format_common,
    "scheduler-gangs": scheduler_gangs.format_table,
    "tested-versions": tested_versions.format_table,
    "tested-drivers": tested_versions.format_drivers,
    "check-rows": lambda: check_rows.format_rows(markdown.fill(_ROWS.read_text(encoding="utf-8"), MAKERS)),
}


def list_files() -> Iterator[tuple[pathlib.Path, str]]:
    """Yield the path and expected text of each file that is generated, fully or in parts."""
    for path in (_ROWS, *sorted(DOCS.rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        if (filled := markdown.fill(text, MAKERS)) != text or "<!-- generated: " in text:
            yield path, filled
    yield check_rows.FOLDER / "tested_versions.json", tested_versions.format_data()
    yield check_rows.FOLDER / "webhook_entries.json", check_rows.format_entries()
    yield permissions.DATA, permissions.format_data()


@functools.cache
def list_stale() -> tuple[pathlib.Path, ...]:
    """Return the files that differ from their expected text. `python -m documentation` updates them."""
    return tuple(path for path, text in list_files() if not path.exists() or path.read_text(encoding="utf-8") != text)
