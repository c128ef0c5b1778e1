"""Runs `railwright explain FILE`: shows the admission of a manifest's pods, by a dry run or by the webhook's code.

If a dry run gives no answer, the policy of the cluster is applied here.

Prints each preview as a coloured diff of the pod's YAML, the reason for each change, then warnings and notes.
"""

import argparse
import asyncio
import difflib
import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.cli import cluster_access, formats, object_files, options, output, policy_sources
from railwright.cli.explanation import dry_runs, previews, recorded, templates
from railwright.cli.explanation.previews import AdmissionPreview, is_rejected
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs
from railwright.fabric import intent, names, text
from railwright.fabric.policy import model
from railwright.fabric.workloads import frameworks
from webhook import reviews, state

Tree = object_files.Tree
_UNCHECKED = "namespace labels, networks, pod-security level and node resources were not checked"
_NOTES = {  # about what a preview lacks, by the kind of its source
    previews.FILE: f"cluster not consulted: {_UNCHECKED}; give --snapshot",
    previews.CONFIG_MAP: f"without a dry run, {_UNCHECKED}",
}
_NO_CLUSTER = "give the policy in a file: --policy FILE"


def explain(arguments: argparse.Namespace) -> int:
    """Print the admission of a manifest's pods. Return 0 if all are admitted, 1 if one is rejected or not injected."""
    is_local = arguments.policy is not None
    if is_local and options.names_cluster(arguments):
        raise output.UnreadableError("--policy FILE uses no cluster; remove --policy, or the options for the cluster")
    if arguments.snapshot is not None and not is_local:
        raise output.UnreadableError("--snapshot: the policy must come from a file too; add --policy FILE")
    policy = object_files.read_policy(arguments.policy) if is_local else None
    objects = {} if arguments.snapshot is None else object_files.read_snapshot(arguments.snapshot)
    caches = previews.fill_caches(objects)
    namespace = arguments.namespace or (
        templates.DEFAULT_NAMESPACE if is_local else kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    )
    pod_templates = _read_templates(arguments, namespace)
    if policy is not None:
        source = previews.Source(previews.FILE, f"the policy in {arguments.policy}, because --policy was given")
        results = _preview_by_file(pod_templates, policy, caches, source)
        if objects:
            from railwright.cli.explanation import fitting  # imports the placement, which few calls need

            results = fitting.add_warnings(results, policy, objects)
    else:
        results = _preview_by_cluster(pod_templates, arguments)
    _print_previews(arguments.output, results)
    sources = {preview.source.kind for preview in results} if arguments.snapshot is None else set()
    for note in [_NOTES[kind] for kind in _NOTES if kind in sources]:
        output.print_note(note)
    is_found = any(previews.is_finding(preview) or previews.never_fits(preview) for preview in results)
    return output.FINDINGS if is_found else output.OK


def _read_templates(arguments: argparse.Namespace, namespace: str) -> Sequence[templates.Template]:
    """Return the pods of all files. Raise UnreadableError if there are none."""
    pod_templates: list[templates.Template] = []
    paths = options.find_files(arguments)
    for tree in (tree for path in paths for tree in object_files.read_manifest(output.read_text(path), path)):
        tree_templates = templates.expand(tree, namespace)
        if not tree_templates:
            output.print_note(f"{templates.format_title(tree)}: {templates.explain_absence(tree)}")
        pod_templates += tree_templates or ()
    if not pod_templates:
        kinds = ", ".join(templates.list_kinds())
        raise output.UnreadableError(f"{', '.join(paths)}: contains no pod and no pod template (supported: {kinds})")
    return pod_templates


def _preview_by_file(
    pod_templates: Sequence[templates.Template], policy: model.Policy, caches: state.State, source: previews.Source
) -> Sequence[AdmissionPreview]:
    made = []
    with output.show_progress("applying the policy", total=len(pod_templates)) as advance:
        for template in pod_templates:
            made.append(previews.preview_admission(template, policy, caches, source))
            advance()
    return asyncio.run(previews.add_topologies(made, previews.admit_here(policy, caches)))


def _preview_by_cluster(
    pod_templates: Sequence[templates.Template], arguments: argparse.Namespace
) -> Sequence[AdmissionPreview]:
    """Return the preview of each template.

    Raise UnreadableError for an invalid pod, and if neither webhook nor policy can be asked.
    """
    for template in pod_templates:
        previews.require_valid(template)  # names the path and the fix, unlike the API server

    async def ask_all(client: clients.Client) -> Sequence[AdmissionPreview]:
        with output.show_progress("dry runs", total=len(pod_templates)) as advance:
            ask = functools.partial(dry_runs.ask, client)
            answers = await cluster_access.gather(ask, pod_templates, advance=advance)
        if any(isinstance(answer, dry_runs.Unanswered) or previews.is_uninjected(answer) for answer in answers):
            policy = await _fetch_policy(client, answers)
            is_disabled = await policy_sources.is_disabled(client)
            pairs = zip(pod_templates, answers, strict=True)
            answers = [_complete(template, answer, policy, is_disabled=is_disabled) for template, answer in pairs]
        # these are all answers, because `_complete` has replaced each Unanswered
        made = [answer for answer in answers if isinstance(answer, AdmissionPreview)]
        shown = await previews.add_topologies(made, dry_runs.admit_by_dry_run(client))
        if any(preview.rails for preview in shown):
            from railwright.cli.explanation import fitting  # imports the placement, which few calls need

            with output.show_progress("reading the nodes"):
                shown = await fitting.add_warnings_by_cluster(client, shown)
        return shown

    try:
        return cluster_access.run(arguments, ask_all, _NO_CLUSTER)
    except errors.UnreachableError as error:
        raise output.UnreadableError(f"{error.sentence}. Or {_NO_CLUSTER}") from None


async def _fetch_policy(
    client: clients.Client, answers: Sequence[AdmissionPreview | dry_runs.Unanswered]
) -> model.Policy | None:
    """Return the policy in the cluster; None if it cannot be read, and no answer needs it.

    Raise UnreadableError, also with the reasons why dry runs failed. Pods that are not injected need no policy.
    """
    unanswered = [answer.reason for answer in answers if isinstance(answer, dry_runs.Unanswered)]
    try:
        return await policy_sources.fetch(client)
    except output.UnreadableError as error:
        if not unanswered:
            return None
        reasons = "; ".join(dict.fromkeys(unanswered))
        raise output.UnreadableError(f"{reasons}; and the policy cannot be read: {error}") from None


def _complete(
    template: templates.Template,
    answer: AdmissionPreview | dry_runs.Unanswered,
    policy: model.Policy | None,
    *,
    is_disabled: bool,
) -> AdmissionPreview | dry_runs.Unanswered:
    """Return the dry run's preview, otherwise the policy's. A pod without injection also gets the policy's intent.

    While railwright is disabled, a pod that opted in is created without injection.
    """
    if isinstance(answer, AdmissionPreview):
        if not previews.is_uninjected(answer):
            return answer
        source, message = answer.source, answer.message
    else:
        where = f"the policy in {policy_sources.CONFIG_MAP}, because {answer.reason}"
        source, message = previews.Source(previews.CONFIG_MAP, where), ""
    if is_disabled:
        message = policy_sources.DISABLED
    uninjected = previews.build_preview(template, reviews.ALLOWED, source, message=message)
    if policy is None:
        return uninjected
    enforced = previews.preview_admission(template, policy, state.State(), source)
    if not intent.is_enforced(policy.document) and enforced.outcome == reviews.ALLOWED:
        # it would get no more than its record, about which the webhook does not warn
        return msgspec.structs.replace(enforced, outcome=reviews.WOULD_PATCH)
    is_opted_in = isinstance(answer, AdmissionPreview) or enforced.fabric or is_rejected(enforced)
    if not (message and is_opted_in):
        return enforced
    intended = {name: getattr(enforced, name) for name in ("fabric", "role", "rails", "warnings")}
    return msgspec.structs.replace(uninjected, **intended)


def _print_previews(form: str, results: Sequence[AdmissionPreview]) -> None:
    if formats.is_document(form):
        formats.print_document([_build_document(preview) for preview in results], form)
        return
    sources = dict.fromkeys(preview.source.text for preview in results)
    for preview in results:
        _print_preview(preview)
    for source in sources:
        output.print_styled((f"source: {source}", "dim"))
    output.print_styled(_format_summary(results))


def _build_document(preview: AdmissionPreview) -> dict[str, Any]:
    """Return a preview as JSON, without the pods: the file has them, and the operations yield the admitted ones."""
    template, fields = preview.template, msgspec.structs.asdict(preview)
    own = {"object": template.owner, "template": template.part, "pods": template.pods}
    return own | {name: fields[name] for name in fields if name not in {"template", "before", "after"}}


_UNENFORCED = (reviews.WOULD_PATCH, reviews.WOULD_REFUSE)
_DIFFERENCES = {"+": "green", "-": "red", "@": "cyan"}


def _print_preview(preview: AdmissionPreview) -> None:
    """Print the output for one template."""
    template = preview.template
    part = f", {template.part}" if template.part else ""
    is_counted = template.pods is not None and template.workload is not None
    pods = f" ({text.format_count(template.pods or 0, 'pod')})" if is_counted else ""
    output.print_styled((f"{template.owner}{part}{pods}", "bold"))
    style = "bold red" if previews.is_finding(preview) else "green" if preview.operations else ""
    output.print_styled((_format_outcome(preview), style))
    if preview.operations:
        old, new = (formats.format_yaml_lines(_decode_record(pod)) for pod in (preview.before, preview.after))
        difference = difflib.unified_diff(old, new, lineterm="")
        for line in itertools.islice(difference, 2, None):  # the first two name files
            output.print_styled((line, _DIFFERENCES.get(line[:1], "dim")))
        print()
    recorded.print_text(preview)
    print()


def _decode_record(pod: Tree) -> Tree:
    """Return the pod with its injection record, which is one line of JSON, as a mapping without empty values.

    Returns the pod as it is if the annotation is missing or was written by a user.
    """
    annotations = dict(frameworks.get_mapping(pod, "metadata", "annotations"))
    try:
        record = json.loads(annotations.pop(names.INJECTION, "") or "null")
    except ValueError:
        return pod
    if not isinstance(record, dict):
        return pod
    fields = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in record.items() if value
    }
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**annotations, f"{names.INJECTION} (JSON)": fields}}}


def _format_summary(previews: Sequence[AdmissionPreview]) -> tuple[str, str]:
    """Return the last line, the number of templates by outcome, and its style."""
    rejected = sum(map(is_rejected, previews))
    patched = sum(preview.outcome == reviews.PATCHED and not _is_only_recorded(preview) for preview in previews)
    unchanged = len(previews) - patched - rejected
    parts = [f"{patched} injected", f"{rejected} rejected", f"{unchanged} unchanged"]
    count = text.format_count(len(previews), "template")
    return f"{count}: {', '.join(parts)}", "bold red" if rejected else "bold green"


def _format_outcome(preview: AdmissionPreview) -> str:
    if is_rejected(preview):
        return f"rejected: {preview.message}"
    if preview.outcome in _UNENFORCED:
        return "mode warn: admitted unchanged; warnings say what enforcing would do"
    if previews.is_uninjected(preview):
        intended = f"; the policy says: {preview.summary}" if preview.fabric else ""
        return f"not injected: {preview.message}{intended}"
    if not preview.fabric:
        return "unchanged: it did not opt in (no label railwright.io/fabric, or `none`)"
    effect = "injected" if preview.operations else "unchanged, it has everything already"
    if _is_only_recorded(preview):
        cause = preview.skipped.get("rails")
        effect = f"nothing is injected{f': {cause.message}' if cause else ''}; only the record is written"
    return f"{effect}: {preview.summary}"


def _is_only_recorded(preview: AdmissionPreview) -> bool:
    """True if all that a pod gets is its injection record, as one without accelerators."""
    is_recorded = names.INJECTION in frameworks.get_mapping(preview.after, "metadata", "annotations")
    return bool(preview.operations) and not preview.changes and is_recorded
