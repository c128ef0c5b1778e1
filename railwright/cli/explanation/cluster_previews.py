"""Previews the pods of a manifest by dry runs in a cluster; where the webhook cannot be asked, by the cluster's policy.

`dry_runs` asks the API server. This module chooses the source of each preview, and reads what a dry run returned.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import jsonpatch
import msgspec

from railwright.cli import cluster_access, dry_runs, options, output, policy_sources
from railwright.cli.explanation import previews, templates
from railwright.cluster import client as clients
from railwright.cluster import errors
from railwright.fabric import intent, names, views
from railwright.fabric.injection import keys
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode, VariableCode
from webhook import reviews, state

_CODED = re.compile(r"(?P<code>[A-Z]\w+): (?P<text>.*)", re.ASCII)
_KUBERNETES = "Kubernetes"  # code of a warning that is not railwright's
_NO_CLUSTER = "give the policy in a file: --policy FILE"
# Reasons of record entries that the record has none for. It has those of variables.
_REASONS = {
    "networks": "attaches the pod to the networks of its rails",
    "devices": "the devices of its rails",
    f"mounts.{names.DEV_SHM}": "memory for NCCL's host buffers",
    f"mounts.{names.DEV_INFINIBAND}": "no device plugin provides these devices",
    "security": "the fabric registers memory with the NIC",
    "preflight": "stops the pod if a rail does not work, before NCCL runs over TCP",
    "nccl.conf": "delivers NCCL's settings to ranks that do not inherit the container's environment",
}


def preview_all(
    pod_templates: Sequence[templates.Template], cluster: options.ClusterOptions
) -> list[previews.AdmissionPreview]:
    """Return the preview of each template. Raise UnreadableError if neither webhook nor policy can be asked."""

    async def ask(client: clients.Client) -> list[previews.AdmissionPreview]:
        answers = await dry_runs.ask_all(client, [template.pod for template in pod_templates])
        policy = await _fetch_policy(client, answers)
        topology_by_title = await _ask_topologies(client, pod_templates)
        pairs = zip(pod_templates, answers, strict=True)
        made = [_preview(template, reply, policy) for template, reply in pairs]
        return [msgspec.structs.replace(preview, topology=topology_by_title.get(preview.object)) for preview in made]

    try:
        return cluster_access.run(cluster, ask, _NO_CLUSTER)
    except errors.UnreachableError as error:
        raise output.UnreadableError(f"{error.sentence}. Or {_NO_CLUSTER}") from None


async def _fetch_policy(client: clients.Client, answers: Sequence[dry_runs.Answer]) -> policies.Policy | None:
    """Return the policy in the cluster, if an answer needs it.

    Raise UnreadableError with the reasons against dry runs, too. A pod that is not injected is described without it.
    """
    unanswered = [reply.reason for reply in answers if isinstance(reply, dry_runs.Unanswered)]
    if not unanswered and not any(isinstance(reply, dry_runs.Uninjected) for reply in answers):
        return None
    try:
        return await policy_sources.fetch(client)
    except output.UnreadableError as error:
        if not unanswered:
            return None
        reasons = "; ".join(dict.fromkeys(unanswered))
        raise output.UnreadableError(f"{reasons}; and the policy cannot be read: {error}") from None


async def _ask_topologies(
    client: clients.Client, pod_templates: Sequence[templates.Template]
) -> Mapping[str, previews.Topology]:
    """Return the topology of each workload by its title, from a dry run. A workload without an answer is left out."""
    by_title: dict[str, previews.Topology] = {}
    for title, workload in previews.list_workloads(pod_templates).items():
        kind = workload.kind
        path = f"/apis/{kind.group}/{kind.version}/namespaces/{workload.namespace}/{kind.plural}?dryRun=All"
        try:
            body, _ = await client.create(path, workload.tree)
        except errors.ApiError:
            continue  # no right, no such kind, or rejected, which its pods show
        topology = previews.read_topology(kind, body)
        if topology is not None:
            by_title[title] = topology
    return by_title


def _preview(
    template: templates.Template, reply: dry_runs.Answer, policy: policies.Policy | None
) -> previews.AdmissionPreview:
    dry_run = previews.Source(previews.DRY_RUN, f"a dry run in namespace {template.namespace}")
    match reply:
        case dry_runs.Admitted():
            return _describe_admitted(template, reply, dry_run)
        case dry_runs.Rejected():
            return previews.build_unchanged(template, reviews.REFUSED, reply.message, dry_run)
        case dry_runs.Uninjected():
            preview = previews.build_unchanged(template, reviews.ALLOWED, reply.reason, dry_run)
            if policy is None:
                return preview
            enforced = previews.preview_admission(template, policy, state.State(), dry_run)
            return msgspec.structs.replace(
                preview,
                fabric=enforced.fabric,
                role=enforced.role,
                rails=enforced.rails,
                warnings=enforced.warnings,
            )
        case dry_runs.Unanswered():
            assert policy is not None  # noqa: S101 - it is read if any answer is of this kind
            where = policy_sources.CONFIG_MAP
            source = previews.Source(previews.CONFIG_MAP, f"the policy in {where}, because {reply.reason}")
            return previews.preview_admission(template, policy, state.State(), source)


def _describe_admitted(
    template: templates.Template, admitted: dry_runs.Admitted, dry_run: previews.Source
) -> previews.AdmissionPreview:
    record = previews.read_record(admitted.after)
    source = previews.Source(dry_run.kind, f"{dry_run.text}, policy {record.policy}") if record.policy else dry_run
    operations = jsonpatch.make_patch(admitted.before, admitted.after).patch
    warnings = _list_warnings(template, admitted)
    outcome = _find_outcome({warning.code for warning in warnings}, has_operations=bool(operations))
    return msgspec.structs.replace(
        previews.build_unchanged(template, outcome, "", source),
        fabric=record.fabric,
        role=record.role,
        rails=record.rails or (),
        operations=operations,
        changes=_list_changes(record),
        warnings=warnings,
        unchanged=record.user_values,
        skipped=record.skipped,
        before=admitted.before,
        after=admitted.after,
    )


def _find_outcome(codes: Collection[str], *, has_operations: bool) -> str:
    if AdmissionCode.WOULD_REJECT in codes:
        return reviews.WOULD_REFUSE
    if AdmissionCode.WOULD_INJECT in codes:
        return reviews.WOULD_PATCH
    return reviews.PATCHED if has_operations else reviews.ALLOWED


def _list_changes(record: intent.Record) -> list[previews.Change]:
    """Return the entries of a record with their reasons."""
    meanings = {code.value: code.meaning for code in VariableCode}
    changes = []
    for entry in record.added:
        general = _REASONS.get(entry) or _REASONS.get(entry.partition(".")[0], "the policy of the fabric")
        why = meanings.get(record.reasons.get(entry, ""), general)
        changes.append(previews.Change(entry, entry, "", why))
    return changes


def _list_warnings(template: templates.Template, admitted: dry_runs.Admitted) -> tuple[reason.Reason, ...]:
    """Return the warnings about keys, then those of the dry run. The API server does not send every pod to railwright.

    A pod without the label is such a pod, so that the dry run has no warning about a misspelt one.
    """
    metadata = msgspec.convert(template.pod["metadata"], views.ObjectMeta)
    about_keys = (*template.warnings, *keys.check_pod(metadata))
    others = [warning for warning in map(_read_warning, admitted.warnings) if warning.code not in keys.CODES]
    return (*about_keys, *others)


def _read_warning(line: str) -> reason.Reason:
    """Return a warning with its code; the API server's own have none, and get _KUBERNETES."""
    match = _CODED.fullmatch(line)
    return reason.Reason(match["code"], match["text"]) if match else reason.Reason(_KUBERNETES, line)
