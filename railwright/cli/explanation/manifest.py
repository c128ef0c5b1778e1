"""Runs `railwright explain FILE`: shows the admission of a manifest's pods, by a dry run or by the webhook's code.

Prints each preview as a coloured diff of the pod's YAML, the reason for each change, then warnings and notes.
"""

import argparse
import difflib
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.cli import cluster_access, formats, object_files, options, output
from railwright.cli.explanation import dry_runs, previews, recorded, templates
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs
from railwright.fabric import names, text
from railwright.fabric.workloads import frameworks
from webhook import reviews

_UNCHECKED = (
    "cluster not consulted: namespace labels, networks, pod-security level and node resources were not checked; give "
    "--snapshot"
)


def explain_manifests(arguments: argparse.Namespace) -> int:
    """Print the admission of a manifest's pods. Return 0 if all are admitted, 1 if one is rejected or not injected."""
    is_local = arguments.policy is not None
    if is_local and options.selects_cluster(arguments):
        raise output.UnreadableError("--policy FILE uses no cluster; remove --policy, or the options for the cluster")
    options.check_sources(arguments)
    namespace = arguments.namespace or (
        templates.DEFAULT_NAMESPACE if is_local else kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    )
    results = _preview_by_file(arguments, namespace) if is_local else _preview_by_cluster(arguments, namespace)
    if formats.is_document(arguments.output):
        formats.print_document([_build_document(preview) for preview in results], arguments.output)
    else:
        _print_previews(results)
    if is_local and arguments.snapshot is None:
        output.print_note(_UNCHECKED)
    is_found = any(preview.is_rejected or preview.is_uninjected for preview in results)
    return output.FINDINGS if is_found else output.OK


def _read_templates(arguments: argparse.Namespace, namespace: str) -> Sequence[templates.Template]:
    """Return the pods of all files. Raise UnreadableError if there are none."""
    pod_templates: list[templates.Template] = []
    paths = options.find_files(arguments)
    for path in paths:
        for tree in object_files.read_manifest(output.read_text(path), path):
            try:
                tree_templates = templates.list_templates(tree, namespace)
            except output.UnreadableError as error:
                raise output.UnreadableError(f"{path}: {error}") from None
            if not tree_templates:
                note = templates.locate_label(tree) or "has no pod template that railwright knows, skipped"
                output.print_note(f"{templates.format_title(tree)}: {note}")
            pod_templates += tree_templates
    if not pod_templates:
        raise output.UnreadableError(f"{', '.join(paths)}: contains no pod and no pod template")
    return pod_templates


def _preview_by_file(arguments: argparse.Namespace, namespace: str) -> Sequence[previews.AdmissionPreview]:
    """Return the preview of each pod of the files by the policy of a file, which the webhook's code applies."""
    policy = object_files.read_policy(arguments.policy)
    objects = {} if arguments.snapshot is None else object_files.read_snapshot(arguments.snapshot)
    caches, source = previews.fill_caches(objects), f"the policy in {arguments.policy}, because --policy was given"
    return [
        previews.preview_admission(template, policy, caches, source)
        for template in _read_templates(arguments, namespace)
    ]


def _preview_by_cluster(arguments: argparse.Namespace, namespace: str) -> Sequence[previews.AdmissionPreview]:
    """Return the preview of each pod of the files by a dry run in the cluster.

    Raises UnreadableError for an invalid pod, and if the cluster cannot be reached.
    """
    pod_templates = _read_templates(arguments, namespace)

    async def preview_all(client: clients.Client) -> Sequence[previews.AdmissionPreview]:
        with output.show_progress("dry runs", total=len(pod_templates)) as advance:
            preview = functools.partial(dry_runs.preview_by_dry_run, client)
            return await cluster_access.call_for_each(preview, pod_templates, advance=advance)

    try:
        return cluster_access.run_with_client(arguments, preview_all, dry_runs.NO_CLUSTER)
    except errors.UnreachableError as error:
        raise output.UnreadableError(f"{error.sentence}. Or {dry_runs.NO_CLUSTER}") from None


# --- the text ---------------------------------------------------------------------------------------------


def _build_document(preview: previews.AdmissionPreview) -> dict[str, Any]:
    """Return a preview as JSON, without the pods: the file has them, and the operations yield the admitted ones."""
    template, fields = preview.template, msgspec.structs.asdict(preview)
    own = {"object": template.owner, "template": template.part, "pods": template.pods}
    return own | {name: fields[name] for name in fields if name not in {"template", "before", "after"}}


def _print_previews(results: Sequence[previews.AdmissionPreview]) -> None:
    for preview in results:
        _print_preview(preview)
    for source in dict.fromkeys(preview.source for preview in results):
        output.print_styled((f"source: {source}", "dim"))
    rejected = sum(preview.is_rejected for preview in results)
    patched = sum(preview.outcome == reviews.PATCHED and not _is_only_recorded(preview) for preview in results)
    counts = f"{patched} injected, {rejected} rejected, {len(results) - patched - rejected} unchanged"
    style = "bold red" if rejected else "bold green"
    output.print_styled((f"{text.format_count(len(results), 'template')}: {counts}", style))


_DIFFERENCES = {"+": "green", "-": "red", "@": "cyan"}


def _print_preview(preview: previews.AdmissionPreview) -> None:
    """Print what admission does to the pods of one template."""
    template = preview.template
    part = f", {template.part}" if template.part else ""
    is_counted = template.pods is not None and template.requested is not None  # it is not a bare Pod
    pods = f" ({text.format_count(template.pods or 0, 'pod')})" if is_counted else ""
    output.print_styled((f"{template.owner}{part}{pods}", "bold"))
    style = "bold red" if preview.is_rejected or preview.is_uninjected else "green" if preview.operations else ""
    output.print_styled((_format_outcome(preview), style))
    if preview.operations:
        old, new = (formats.format_yaml_lines(_leave_out_record(pod)) for pod in (preview.before, preview.after))
        difference = difflib.unified_diff(old, new, lineterm="")
        for line in itertools.islice(difference, 2, None):  # the first two name files
            output.print_styled((line, _DIFFERENCES.get(line[:1], "dim")))
        print()
    recorded.print_injection(preview)
    print()


def _leave_out_record(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod without its injection record, a long line of JSON that says what is printed below the diff."""
    metadata = dict(pod["metadata"])
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(names.INJECTION, None)
    return {**pod, "metadata": {**metadata, "annotations": annotations} if annotations else metadata}


def _format_outcome(preview: previews.AdmissionPreview) -> str:
    if preview.is_rejected:
        return f"rejected: {preview.message}"
    if preview.outcome in previews.UNENFORCED:
        return f"mode warn: admitted unchanged; {preview.message or 'warnings say what enforcing would do'}"
    if preview.is_uninjected:
        return f"not injected: {preview.message}"
    if not preview.fabric:
        return f"unchanged: {preview.no_opt_in or 'the pod did not opt in (no label railwright.io/fabric, or `none`)'}"
    effect = "injected" if preview.operations else "unchanged, because the pod already has all that admission adds"
    if _is_only_recorded(preview):
        cause = preview.skipped.get("rails")
        effect = f"nothing is injected{f': {cause.message}' if cause else ''}; only the record is written"
    return f"{effect}: {preview.summary}"


def _is_only_recorded(preview: previews.AdmissionPreview) -> bool:
    """True if a pod gets only its injection record, such as a pod without accelerators."""
    is_recorded = names.INJECTION in frameworks.get_mapping(preview.after, "metadata", "annotations")
    return bool(preview.operations) and not preview.changes and is_recorded
