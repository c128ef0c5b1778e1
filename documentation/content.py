"""Lists the generated parts of the documentation and the files that contain them. Writes nothing."""

import functools
import pathlib
from collections.abc import Iterator, Mapping

from documentation import (
    blocks,
    check_rows,
    commands,
    event_reasons,
    examples,
    glossary,
    metrics_reference,
    permissions,
    placement,
    policy,
    reason_codes,
    refusals,
    rules,
    tested_versions,
)

DOCS = examples.ROOT / "docs"
_ROWS = check_rows.FOLDER / "rows.md"

MAKERS: Mapping[str, blocks.Maker] = {
    "policy-reference": policy.format_reference,
    "commands": commands.list_commands,
    "lint-overview": rules.format_overview,
    "lint-rules": rules.format_all,
    "reason-codes": reason_codes.list_codes,
    "rejection-codes": reason_codes.list_rejections,
    "admission-codes": reason_codes.list_admission,
    "variable-codes": reason_codes.list_variables,
    "events": event_reasons.list_reasons,
    "metrics": metrics_reference.format_tables,
    "glossary": glossary.copy_table,
    "permissions": permissions.format_permissions,
    "file": examples.include_file,
    "admission": examples.show_admission,
    "common-refusals": refusals.format_common,
    "placement-scene": placement.format_scene,
    "placement-study": placement.format_study,
    "tested-versions": tested_versions.format_table,
    "tested-drivers": tested_versions.format_drivers,
    "check-rows": lambda: check_rows.format_rows(blocks.fill(_ROWS.read_text(encoding="utf-8"), MAKERS)),
}


def list_files() -> Iterator[tuple[pathlib.Path, str]]:
    """Yield the path and expected text of each file that is generated, fully or in parts."""
    for path in (_ROWS, *sorted(DOCS.rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        if (filled := blocks.fill(text, MAKERS)) != text or "<!-- generated: " in text:
            yield path, filled
    for name, svg in placement.draw_pictures().items():
        yield DOCS / name, svg
    yield check_rows.FOLDER / "tested_versions.json", tested_versions.format_data()
    yield check_rows.FOLDER / "webhook_entries.json", check_rows.format_entries()
    yield permissions.DATA, permissions.format_data()


@functools.cache
def list_stale() -> tuple[pathlib.Path, ...]:
    """Return the files that differ from their expected text. `python -m documentation` updates them."""
    return tuple(path for path, text in list_files() if not path.exists() or path.read_text(encoding="utf-8") != text)
