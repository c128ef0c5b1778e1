"""Renders the preview of a pod: a coloured diff of its YAML, the reason for each change, then warnings and notes.

All text from files passes through `output.visible`, which escapes control characters.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from railwright.cli import output, pod_yaml
from railwright.cli.explanation.previews import AdmissionPreview, is_rejected
from webhook import answer

_CONTEXT = 3  # unchanged lines around a change, as in diff -u
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def render(preview: AdmissionPreview, *, full: bool) -> Group:
    """Return the output for one template. `full` shows the whole pod around its changes."""
    unchanged = [
        f"{container}: {', '.join(entries)} (the pod's own)" for container, entries in preview.unchanged.items()
    ]
    return Group(
        Text(output.visible(_format_title(preview)), style="bold underline"),
        Text(output.visible(_format_outcome(preview)), style=_get_style(preview)),
        *([_render_difference(preview, full=full), _render_reasons(preview)] if preview.operations else []),
        *_render_notes("warning", "yellow", preview.warnings),
        *_render_notes("kept", "cyan", unchanged),
        *_render_notes("skipped", "dim", [f"{step}: {reason}" for step, reason in preview.skipped.items()]),
        Text(),
    )


def build_summary(previews: Sequence[AdmissionPreview]) -> Text:
    """Return the last line: the number of templates by outcome."""
    rejected = sum(map(is_rejected, previews))
    patched = sum(preview.outcome == answer.PATCHED for preview in previews)
    parts = [f"{patched} injected", f"{rejected} refused", f"{len(previews) - patched - rejected} unchanged"]
    noun = "template" if len(previews) == 1 else "templates"
    return Text(f"{len(previews)} {noun}: {', '.join(parts)}", style="bold red" if rejected else "bold green")


def _format_title(preview: AdmissionPreview) -> str:
    template = f", {preview.template}" if preview.template else ""
    if preview.pods is None or preview.object.startswith("Pod "):
        return f"{preview.object}{template}"
    return f"{preview.object}{template} ({preview.pods} pod{'' if preview.pods == 1 else 's'})"


def _format_outcome(preview: AdmissionPreview) -> str:
    if is_rejected(preview):
        return f"refused: {preview.message}"
    if not preview.fabric:
        return "unchanged: it did not opt in (no label railwright.io/fabric, or `none`)"
    rails = f", rails {', '.join(preview.rails)}" if preview.rails else ""
    effect = "injected" if preview.operations else "unchanged, it has everything already"
    return f"{effect}: fabric {preview.fabric}, role {preview.role}{rails}"


def _get_style(preview: AdmissionPreview) -> str:
    return "bold red" if is_rejected(preview) else "green" if preview.operations else "default"


def _render_difference(preview: AdmissionPreview, *, full: bool) -> Text:
    before, after = [pod_yaml.format_lines(pod_yaml.decode_record(pod)) for pod in (preview.before, preview.after)]
    context = max(len(before), len(after)) if full else _CONTEXT
    text = Text()
    for number, line in enumerate(difflib.unified_diff(before, after, n=context, lineterm="")):
        if number > 1:  # the first two lines name files
            text.append(output.visible(line) + "\n", style=_STYLES.get(line[:1], "dim"))
    return text


def _render_reasons(preview: AdmissionPreview) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("change", style="green", overflow="fold")
    table.add_column("why", overflow="fold")
    for change in preview.changes:
        table.add_row(Text(output.visible(change.change)), Text(output.visible(change.reason)))
    return table


def _render_notes(word: str, style: str, sentences: Iterable[str]) -> Iterator[Text]:
    for sentence in sentences:
        yield Text(output.visible(f"{word}: {sentence}"), style=style)
