"""Runs `railwright explain FILE`: asks the webhook's own code what it would do to the pods of a manifest.

Renders each preview as a coloured diff of the pod's YAML, the reason for each change, then warnings and notes.
"""

import argparse
import os
import re
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from railwright.cli import formats, object_files, options, output, policies
from railwright.cli.explanation import previews, recorded, templates
from railwright.cli.explanation.previews import AdmissionPreview, is_rejected
from railwright.cluster import kubeconfigs
from railwright.fabric import text
from railwright.fabric.policy import model
from webhook import reviews, state

_UNCONSULTED = (
    "cluster not consulted: namespace labels, networks, pod-security level and node resources were not checked; "
    "give --snapshot"
)
_OBJECT = re.compile(r"[a-z]+/([a-z0-9]([-a-z0-9]*[a-z0-9])?)", re.ASCII)  # KIND/NAME, as kubectl writes it


def explain(arguments: argparse.Namespace) -> int:
    """Print what admission does to the pods of a manifest. Return 0 if it admits all, 1 if it rejects or misses one."""
    cluster = options.get_cluster(arguments)
    is_local = arguments.policy is not None
    if is_local and cluster.is_given:
        raise output.UnreadableError("--policy FILE asks no cluster; remove --policy, or the options for the cluster")
    if arguments.snapshot is not None and not is_local:
        raise output.UnreadableError("--snapshot: the policy must come from a file too; add --policy FILE")
    policy = policies.read_file(arguments.policy) if is_local else None
    caches = previews.load_caches(arguments.snapshot)
    namespace = arguments.namespace or (
        templates.DEFAULT_NAMESPACE if is_local else kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    )
    pod_templates = _read_templates(arguments, namespace)
    if policy is not None:
        source = previews.Source(previews.FILE, f"the policy in {arguments.policy}, because --policy was given")
        results = _preview_all(pod_templates, policy, caches, source)
    else:
        from railwright.cli.explanation import dry_runs  # imports the client of the API server

        results = dry_runs.preview_all(pod_templates, cluster)
    _print_previews(arguments.output, results)
    if arguments.snapshot is None and any(preview.source.kind != previews.DRY_RUN for preview in results):
        output.print_note(_UNCONSULTED)
    return output.FINDINGS if any(map(previews.is_finding, results)) else output.OK


def _read_templates(arguments: argparse.Namespace, namespace: str) -> Sequence[templates.Template]:
    """Return the pods of all files. Raise UnreadableError if there are none."""
    pod_templates: list[templates.Template] = []
    paths = options.find_files(arguments)
    for tree in (tree for path in paths for tree in object_files.read_manifest(_read_file(path), path)):
        tree_templates = templates.expand(tree, namespace)
        if not tree_templates:
            output.print_note(f"{object_files.format_title(tree)}: {templates.explain_absence(tree)}")
        pod_templates += tree_templates or ()
    if not pod_templates:
        kinds = ", ".join(templates.list_kinds())
        raise output.UnreadableError(f"{', '.join(paths)}: contains no pod and no pod template (supported: {kinds})")
    return pod_templates


def _read_file(path: str) -> str:
    """Return the text of a file. Raise UnreadableError, with the form that was probably meant for `jobset/llm`."""
    try:
        return output.read_text(path)
    except output.UnreadableError as error:
        if not (named := _OBJECT.fullmatch(path)) or os.path.exists(path):  # noqa: PTH110 - as given
            raise
        fix = f"to explain a job of any kind in the cluster: job/{named[1]}"
        raise output.UnreadableError(f"{error}; {fix}") from None


def _preview_all(
    pod_templates: Sequence[templates.Template], policy: model.Policy, caches: state.State, source: previews.Source
) -> list[AdmissionPreview]:
    topology_by_title = previews.preview_topologies(pod_templates, policy, caches)
    made = []
    with output.show_progress("applying the policy", total=len(pod_templates)) as advance:
        for template in pod_templates:
            preview = previews.preview_admission(template, policy, caches, source)
            made.append(msgspec.structs.replace(preview, topology=topology_by_title.get(preview.object)))
            advance()
    return made


def _print_previews(form: str, results: Sequence[AdmissionPreview]) -> None:
    if formats.is_document(form):  # without the pods: the file has the original, and the operations yield the result
        trees = [msgspec.to_builtins(preview) for preview in results]
        documents = [{key: tree[key] for key in tree if key not in {"before", "after"}} for tree in trees]
        formats.print_document(documents, form)
        return
    sources = dict.fromkeys(preview.source.text for preview in results)
    recorded.print_all(
        *(part for preview in results for part in _list_parts(preview)),
        *(recorded.format_line(f"source: {source}", "dim") for source in sources),
        build_summary(results),
    )


_UNENFORCED = (reviews.WOULD_PATCH, reviews.WOULD_REFUSE)
_CONTEXT = 3  # unchanged lines around a change, as in diff -u


def _list_parts(preview: AdmissionPreview) -> Iterator[RenderableType]:
    """Yield the output for one template."""
    yield recorded.format_line(_format_title(preview), "bold underline")
    style = "bold red" if previews.is_finding(preview) else "green" if preview.operations else "default"
    yield recorded.format_line(_format_outcome(preview), style)
    if preview.operations:
        for line, style in object_files.format_difference(preview.before, preview.after, _CONTEXT):
            yield recorded.format_line(line, style)
        yield Text()
        yield recorded.render(preview.changes)
    if preview.topology is not None:
        decision = f"{preview.topology.scheduler} decides where the gang runs; {preview.topology.reason.line}"
        yield recorded.format_line(f"topology: {decision}", "cyan")
    for warning in preview.warnings:
        yield recorded.format_line(f"warning: {warning.line}", "yellow")
    yield from recorded.render_untouched(preview.unchanged, preview.skipped)
    yield Text()


def build_summary(previews: Sequence[AdmissionPreview]) -> Text:
    """Return the last line: the number of templates by outcome."""
    rejected = sum(map(is_rejected, previews))
    patched = sum(preview.outcome == reviews.PATCHED for preview in previews)
    unchanged = len(previews) - patched - rejected
    parts = [f"{patched} injected", f"{rejected} rejected", f"{unchanged} unchanged"]
    count = text.format_count(len(previews), "template")
    return Text(f"{count}: {', '.join(parts)}", style="bold red" if rejected else "bold green")


def _format_title(preview: AdmissionPreview) -> str:
    template = f", {preview.template}" if preview.template else ""
    if preview.pods is None or preview.object.startswith("Pod "):
        return f"{preview.object}{template}"
    return f"{preview.object}{template} ({text.format_count(preview.pods, 'pod')})"


def _format_outcome(preview: AdmissionPreview) -> str:
    if is_rejected(preview):
        return f"rejected: {preview.message}"
    if preview.outcome in _UNENFORCED:
        return "mode warn: admitted unchanged; the warning says what enforcing would do"
    rails = f", rails {', '.join(preview.rails)}" if preview.rails else ""
    if previews.is_uninjected(preview):
        intended = f"; the policy says: fabric {preview.fabric}, role {preview.role}{rails}" if preview.fabric else ""
        return f"not injected: {preview.message}{intended}"
    if not preview.fabric:
        return "unchanged: it did not opt in (no label railwright.io/fabric, or `none`)"
    effect = "injected" if preview.operations else "unchanged, it has everything already"
    return f"{effect}: fabric {preview.fabric}, role {preview.role}{rails}"
