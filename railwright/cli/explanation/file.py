"""Runs `railwright explain FILE`: asks the webhook's own code what it would do to the pods of a manifest."""

import argparse
import io
import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console

from railwright.cli import formats, manifest_files, output, policies
from railwright.cli.explanation import previews, rendering, templates

_UNCONSULTED = (
    "cluster not consulted: namespace labels, networks, pod-security level and node resources were not checked; "
    "give --snapshot"
)
_PIPED_WIDTH, _PICTURE_WIDTH = 160, 120  # columns without a terminal, and of the SVG


def explain(arguments: argparse.Namespace) -> int:
    """Print what admission does to the pods of a manifest. Return 0 if it admits all, 1 if it rejects one."""
    policy = policies.read_file(arguments.policy)
    caches = previews.load_caches(arguments.snapshot)
    pod_templates: list[templates.Template] = []
    for tree in manifest_files.read(output.read_text(arguments.file), arguments.file):
        tree_templates = templates.expand(tree, arguments.namespace or templates.DEFAULT_NAMESPACE)
        if tree_templates is None:
            print(
                f"railwright: {output.visible(manifest_files.format_title(tree))} creates no pods, skipped",
                file=sys.stderr,
            )
        pod_templates += tree_templates or ()
    if not pod_templates:
        kinds = ", ".join(templates.list_kinds())
        raise output.UnreadableError(f"{arguments.file}: contains no pod and no pod template (supported: {kinds})")
    results = [previews.preview_admission(template, policy, caches) for template in pod_templates]
    _print_previews(arguments, results)
    if arguments.snapshot is None:
        print(f"railwright: {_UNCONSULTED}", file=sys.stderr)
    return output.FINDINGS if any(map(previews.is_rejected, results)) else output.OK


def _print_previews(arguments: argparse.Namespace, results: Sequence[previews.AdmissionPreview]) -> None:
    if arguments.output == "json":
        formats.print_json([_build_document(preview) for preview in results])
    console = Console(record=True, highlight=False, file=io.StringIO() if arguments.output == "json" else None)
    if arguments.svg or not console.is_terminal:
        console.width = _PICTURE_WIDTH if arguments.svg else _PIPED_WIDTH
    for preview in results:
        console.print(rendering.render(preview, full=arguments.full))
    console.print(rendering.build_summary(results))
    if arguments.svg:
        svg = console.export_svg(title=f"railwright explain {arguments.file}")
        arguments.svg.write_text(output.offline(svg), encoding="utf-8")


def _build_document(preview: previews.AdmissionPreview) -> dict[str, object]:
    """Return the preview without the pods: the file has the original, and the operations produce the result."""
    tree: dict[str, object] = msgspec.to_builtins(preview)
    return {key: value for key, value in tree.items() if key not in {"before", "after"}}
