"""Runs `railwright explain pod`: asks a running extender why a pod is on its node.

Without the right to ask it, explains the pod from what a reader of its namespace sees: its annotations, its condition,
and Events about its gang. Only the extender has scores of nodes.
"""

import argparse
import contextlib
from collections.abc import Sequence
from typing import Any
from urllib import parse

import msgspec
from rich.console import Group, RenderableType

from railwright.cli import cluster_access, commands, options, output, verification
from railwright.cli.explanation import extender_client
from railwright.cli.explanation.extender_client import format_line
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, installed_names, kubeconfigs, watch_wire
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import keys, opt_in, templates
from railwright.fabric.reasons import rendering
from railwright.fabric.workloads import membership, pod_groups, registry

_DEPLOYMENT = f"/apis/apps/v1/namespaces/{installed_names.NAMESPACE}/deployments/{installed_names.EXTENDER}"
_FULL = (
    f"the Role {installed_names.USER_ROLE} in namespace {installed_names.NAMESPACE}, and a token (--token "
    '"$(kubectl create token SERVICEACCOUNT)"), allow to ask the extender'
)
_COMPONENT = "railwright-extender"
_DEFAULT_SCHEDULER = "default-scheduler"
_GATED = "SchedulingGated"  # reason of a condition (k8s.io/api/core/v1, PodReasonSchedulingGated)
# by reason of an Event, the outcome as the extender calls it (docs/explain.md)
_OUTCOMES = {
    "GangUnplaceable": "unplaceable",
    "GangSpread": "spread",
    "GangDegraded": "degraded",
    "GangLimited": "compact",
}
_MAX_OWNERS = 4  # of a pod, one above the other: the longest known chain is Job, JobSet and TrainJob
_STYLES = {"unplaceable": "bold red", "spread": "yellow", "degraded": "yellow"}


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class Report(msgspec.Struct, frozen=True):
    """One Event about the pod or its gang."""

    reason: str
    message: str
    count: int
    last: str


class PodRecord(msgspec.Struct, frozen=True):
    """Facts about a pod's placement, from the objects of its namespace."""

    pod: str
    fabric: str
    role: str
    rails: Sequence[str]
    outcome: str  # placed | waiting | unplaceable | compact | spread | degraded
    node: str
    placement: intent.Placement | None
    waiting: str  # the scheduler's reason
    events: Sequence[Report]
    source: str = "pod"
    missed_label: str = ""  # of a pod that is not injected
    workload_label: str = ""  # why the label of its workload does not reach the pod
    audit: str = ""  # what would have been done to a pod that was admitted in audit mode
    warnings: Sequence[rendering.Message] = ()  # about keys of railwright that have no effect
    topology: rendering.Message | None = None  # what its workload asks of the scheduler, or why it asks for nothing
    decided_by: str = ""  # the scheduler that reads it
    unasked: str = ""  # why no scheduler asked the extender about it, as far as the pod shows


async def read(client: clients.Client, namespace: str, name: str) -> PodRecord:
    """Return the record of a pod. Raise ClusterError."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = await client.get(f"{path}/{name}")
    try:
        pod, status = msgspec.json.decode(body, type=views.Pod), msgspec.json.decode(body, type=_Pod).status
    except watch_wire.UNREADABLE as error:
        raise failures.build_foreign(client.host, path, str(error)) from None
    if pod.metadata.name != name:
        raise failures.build_foreign(client.host, path)
    gang = membership.find_gang(pod)
    members = await watch_wire.list_objects(client, path, views.Pod) if gang else [pod]
    involved = {member.metadata.name for member in members if membership.find_gang(member) == gang} | {name}
    involved |= {pod_groups.find_pod_group(gang).rpartition("/")[2]} if gang else set()
    query = {"fieldSelector": f"source={_COMPONENT}"}
    events = await watch_wire.list_objects(client, f"/api/v1/namespaces/{namespace}/events", views.Event, query)
    about_gang = [event for event in events if event.involved_object.name in involved]
    record = _build(pod, status, sorted(map(_report, about_gang), key=lambda report: report.last))
    if names.FABRIC in pod.metadata.labels or names.INJECTION in pod.metadata.annotations:
        return record
    return msgspec.structs.replace(record, workload_label=await _explain_workload_label(client, pod.metadata))


async def _explain_workload_label(client: clients.Client, metadata: views.ObjectMeta, levels: int = _MAX_OWNERS) -> str:
    """Return why the label of a workload above an object does not reach its pods, and the fix; "" if none is lost."""
    owner = metadata.controller
    if owner is None or levels == 0:
        return ""
    group, _, version = owner.api_version.rpartition("/")
    kind = registry.find_kind(group, version, owner.kind)
    if kind is None:
        return ""
    name = parse.quote(owner.name, safe="")
    path = f"/apis/{kind.group}/{kind.version}/namespaces/{metadata.namespace}/{kind.plural}/{name}"
    try:
        workload = templates.read(kind, await client.get(path))
    except (errors.ClusterError, templates.UnreadableError):
        return ""  # without the right to read it, only the pod is known
    warnings = [warning.message for warning in keys.check_label(kind, workload.label, workload.templates)]
    for problem in (keys.describe_uncopied(workload), *warnings):
        if problem:
            return f"{kind.name} {owner.name}: {problem}"
    return await _explain_workload_label(client, workload.metadata, levels - 1)


async def is_uninjected(client: clients.Client, namespace: str, name: str) -> bool:
    """True for a pod that was not injected, which a decision of the extender does not tell. Raise ClusterError."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    pod = await cluster_access.read_object(client, path, views.Pod)
    return pod.metadata.name == name and (bool(_find_missed_label(pod)) or not intent.is_opted_in(pod))


def is_finding(record: PodRecord) -> bool:
    """True if the pod is not injected, cannot be placed, or its gang was placed worse than was possible."""
    return bool(record.missed_label or record.workload_label) or record.outcome in extender_client.WORSE


def render(record: PodRecord) -> Group:
    """Return the output for a record."""
    rails = f", rails {', '.join(record.rails)}" if record.rails else ""
    fabric = f"fabric {record.fabric}, role {record.role}{rails}" if record.fabric else "did not opt in"
    if record.workload_label:
        fabric = f"not injected, because it has no label {names.FABRIC}; {record.workload_label}"
    if record.missed_label:
        fabric = (
            f"label {names.FABRIC} {record.missed_label!r}, but not injected: the label was set after the pod's "
            "creation, or the webhook was not called; set it in the pod template, then delete the pod, so that it is "
            "created again"
        )
    if record.audit:
        fabric = (
            f"created in audit mode, so not changed by railwright; {record.audit}; once the fabric is enforced, delete "
            "the pod, so that it is created again"
        )
    lines: list[RenderableType] = [
        format_line(f"Pod {record.pod}: {fabric}", "bold underline"),
        *[format_line(f"warning: {warning.line}", "yellow") for warning in record.warnings],
        format_line(
            f"{record.outcome}{f' on node {record.node}' if record.node else ''}", _STYLES.get(record.outcome, "")
        ),
    ]
    if record.topology is not None:
        decided_by = record.decided_by or "unknown scheduler"
        lines.append(format_line(f"topology, for {decided_by}: {record.topology.line}"))
    if record.placement is not None:
        domains = ", ".join(domain or "unlabelled" for domain in record.placement.domains)
        lines.append(format_line(f"domains, closest first: {domains or 'none in the policy'}"))
        held = [(device.rail, device.rdma_device or device.device) for device in record.placement.devices or ()]
        of_node = f"rails of the node: {', '.join(record.placement.rails) or 'none'}"
        lines.append(format_line(extender_client.describe_held_rails(held) if held else of_node))
        why_skipped = map(rendering.render_recorded, (record.placement.skipped or {}).values())
        lines += [format_line(why, "yellow") for why in why_skipped]
    if record.waiting:
        lines.append(format_line(f"because: {record.waiting}", "yellow"))
    lines += [
        format_line(f"Event {event.reason}{f' ({event.count}x)' if event.count > 1 else ''}: {event.message}")
        for event in record.events
    ]
    return Group(*lines)


def _build(pod: views.Pod, status: _Status, reports: Sequence[Report]) -> PodRecord:
    injection = intent.read_record(pod)
    node = pod.spec.node_name or ""
    outcomes = [_OUTCOMES[report.reason] for report in reports if report.reason in _OUTCOMES]
    if node:  # what was true while the gang waited is so no longer
        outcomes = [outcome for outcome in outcomes if outcome != "unplaceable"]
    unscheduled = [
        condition.message or ""
        for condition in status.conditions or ()
        if (condition.type, condition.status) == ("PodScheduled", "False")
    ]
    placement = intent.read_placement(pod)
    rails = placement.rails if placement is not None and placement.devices else injection.rails  # chosen at binding
    topology = intent.read_topology(pod)
    dropped = injection.skipped.get("topology")
    topology_reason = dropped or topology.reason
    return PodRecord(
        pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
        fabric="" if injection.is_audit else injection.fabric,
        role="" if injection.is_audit else injection.role,
        rails=() if injection.is_audit else rails or (),
        outcome=outcomes[-1] if outcomes else "placed" if node else "waiting",
        node=node,
        placement=placement,
        waiting="" if node else "; ".join(unscheduled),
        events=reports,
        audit=_describe_audit(injection),
        missed_label=_find_missed_label(pod),
        warnings=rendering.describe_all(keys.check_pod(pod.metadata)),
        topology=rendering.describe_recorded(topology_reason) if topology_reason is not None else None,
        decided_by=topology.scheduler,
        unasked=_describe_unasked(pod, status),
    )


def _describe_unasked(pod: views.Pod, status: _Status) -> str:
    """Return why a scheduler may not have asked about an injected pod."""
    scheduler = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
    if any(condition.reason == _GATED for condition in status.conditions or ()):
        return "the pod has scheduling gates, and no scheduler looks at it until they are removed"
    if pod.spec.node_name and names.PLACEMENT not in pod.metadata.annotations:
        return (
            f"the pod has no annotation {names.PLACEMENT}: it was created with spec.nodeName, so that no scheduler "
            "placed it, or bound while the webhook did not answer"
        )
    return (
        f"the pod's schedulerName is {scheduler}; if this scheduler has not asked about other pods either, its "
        "configuration lacks the extender (`railwright check`), otherwise its own plugins reject every node"
    )


def _find_missed_label(pod: views.Pod) -> str:
    """Return the label of a pod that opts in and has no record, "" for other pods."""
    is_missed = intent.has_fabric_label(pod) and not intent.read_record(pod).is_audit and opt_in.is_uninjected(pod)
    return pod.metadata.labels[names.FABRIC] if is_missed else ""


def _describe_audit(record: intent.Record) -> str:
    if not record.is_audit:
        return ""
    if record.rejected:
        return f"it would have been rejected: {record.rejected}"
    added = ", ".join(record.added) or "nothing"
    return f"by fabric {record.fabric} it would have got {added}"


def _report(event: Any) -> Report:
    last = event.last_timestamp or event.event_time or ""
    return Report(event.reason, event.message, event.count or 1, last)


def explain(arguments: argparse.Namespace) -> int:
    """Print the extender's explanation, or that the pod is not injected. Return 0 if it is or can be placed optimally.

    Return 1 if not. Raise UnreadableError and ClusterError.
    """
    form, name = commands.find_pod(arguments) or ("", "")
    namespace, name = (arguments.namespace, name) if form else _parse_pod(name, arguments.namespace)
    namespace = namespace or kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    if form:
        name = _choose_pod(options.get_cluster(arguments), namespace, form, name)
    target = extender_client.Target(
        arguments.extender, arguments.token, arguments.token_file, arguments.ca, options.get_cluster(arguments)
    )
    if _is_uninjected(namespace, name, target):
        return _explain_by_record(namespace, name, arguments, None)
    try:
        body = extender_client.fetch_explanation(namespace, name, target)
    except extender_client.NoExtenderError as error:
        return _explain_by_record(namespace, name, arguments, error)
    explanation = extender_client.read_explanation(body)
    extender_client.print_explanation(msgspec.Raw(body), extender_client.render(explanation), arguments.output)
    return output.FINDINGS if extender_client.is_finding(explanation) else output.OK


def _is_uninjected(namespace: str, name: str, target: extender_client.Target) -> bool:
    """True if the pod can be read and was not injected. The extender would explain it as if it had its rails."""
    if target.extender and not target.cluster.is_given:  # such as an extender on a snapshot, without a cluster
        return False
    with contextlib.suppress(errors.ClusterError, output.UnreadableError):  # asking the extender says what is wrong
        return cluster_access.run(target.cluster, lambda client: is_uninjected(client, namespace, name))
    return False


def _choose_pod(cluster: options.ClusterOptions, namespace: str, form: str, name: str) -> str:
    """Return the first pod of a job or gang that waits for a node, otherwise its first one, and print which.

    Raises UnreadableError and ClusterError.
    """
    members = cluster_access.run(cluster, lambda client: verification.find_pods(client, namespace, form, name))
    chosen = next((pod for pod in members if not pod.spec.node_name), members[0])
    which = "the first" if chosen.spec.node_name else "the first that waits"
    title = f"{form}/{name}: pod {chosen.metadata.name}"
    count = text.format_count(len(members), "pod")
    output.print_note(f"{title}, {which} of {count}")
    return chosen.metadata.name


def _parse_pod(pod: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name), the namespace "" if none is given. Raise UnreadableError."""
    first, slash, rest = pod.partition("/")
    if not pod or (slash and (not first or not rest or "/" in rest)):
        raise output.UnreadableError(f"explain pod {pod or '(no pod)'}: give pod/NAME -n NAMESPACE (for a file: ./pod)")
    if slash and namespace not in ("", first):
        raise output.UnreadableError(f"explain pod {pod}: -n {namespace} is another namespace; give one of them")
    return (first, rest) if slash else (namespace, pod)


def _explain_by_record(
    namespace: str, name: str, arguments: argparse.Namespace, no_extender: extender_client.NoExtenderError | None
) -> int:
    """Print what the pod's own namespace tells, and return the exit code. Raise ClusterError.

    `no_extender` says why the extender explains nothing, None if it was not asked. It is raised if the namespace cannot
    be read either.
    """

    async def read_records(client: clients.Client) -> tuple[PodRecord, str]:
        return await read(client, namespace, name), await _find_scaled_down(client)

    try:
        record, scaled_down = cluster_access.run(options.get_cluster(arguments), read_records)
    except errors.ApiError as error:
        if error.foreign and no_extender:
            raise no_extender from None
        raise
    except errors.ClusterError as error:
        raise no_extender or error from None
    extender_client.print_explanation(record, render(record), arguments.output)
    if record.fabric and no_extender:  # schedulers ask about no other pod
        advice = record.unasked if no_extender.has_answered else _FULL
        cause = scaled_down or f"{no_extender.cause}; {advice}"
        output.print_note(f"without scores of nodes: {cause}")
    return output.FINDINGS if is_finding(record) else output.OK


async def _find_scaled_down(client: clients.Client) -> str:
    """Return the cause and the fix if the extender has no replicas, "" if it has some or the caller may not know."""
    try:
        deployment = await cluster_access.read_object(client, _DEPLOYMENT, cluster_access.Deployment)
    except errors.ClusterError:
        return ""
    if deployment.spec.replicas:
        return ""
    return (
        f"Deployment {installed_names.NAMESPACE}/{installed_names.EXTENDER} has 0 replicas, so schedulers place pods "
        f"without it; start it: kubectl -n {installed_names.NAMESPACE} scale deployment {installed_names.EXTENDER} "
        "--replicas=2"
    )
