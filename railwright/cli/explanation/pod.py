"""Runs `railwright explain pod`: asks a running extender why a pod is on its node, by a URL or the API server's proxy.

A token is sent only to the host that the user named, and never unencrypted over a network. Fields that this version
does not know are ignored, so that it can read the answer of a newer extender.

Without the right to ask it, explains the pod from what a reader of its namespace sees: its annotations, its condition,
and Events about its gang. Only the extender has scores of nodes.
"""

import argparse
import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

import aiohttp
import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from railwright.cli import cluster_access, commands, formats, options, output, verification
from railwright.cluster import client as clients
from railwright.cluster import credentials, errors, failures, installed_names, kubeconfigs, watch_wire
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import keys, opt_in, templates
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership, pod_groups, registry
from railwright.serving import settings

SECONDS = 30.0  # for one answer
_SERVICES = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services"
_SERVICE = f"{_SERVICES}/{installed_names.EXTENDER}"
_FORWARD = (
    f"kubectl -n {installed_names.NAMESPACE} port-forward pod/LEADER {names.EXTENDER_PORT} (the holder of "
    f"kubectl -n {installed_names.NAMESPACE} get lease {installed_names.EXTENDER}, without the part after _), then add "
    f"--extender https://localhost:{names.EXTENDER_PORT} --ca ca.crt --token-file FILE"
)
_IDENTIFY = (
    'give one: --token "$(kubectl create token SERVICEACCOUNT)", of an account that may get pods in that namespace'
)
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme
_UNREVIEWED = 503  # of the extender, if the API server does not review a token


class Target(NamedTuple):
    """Options of the command line; "" if not given."""

    extender: str
    token: str
    token_file: str
    ca: str
    cluster: options.ClusterOptions


class NoDecisionError(output.UnreadableError):
    """The extender has stored no decision on the pod."""


class NoExtenderError(output.UnreadableError):
    """The extender explained nothing through the API server. `cause` is the message without other ways to ask it.

    `has_answered` is true if it was asked and has no decision on the pod.
    """

    def __init__(self, cause: str, message: str, *, has_answered: bool = False) -> None:
        super().__init__(message)
        self.cause, self.has_answered = cause, has_answered


class _ErrorDetail(msgspec.Struct):
    reason: str = ""


class _Answer(msgspec.Struct):
    """An error of the extender or of the API server, or an explanation."""

    error: _ErrorDetail | None = None
    message: str = ""
    outcome: str = ""  # of an explanation


def fetch_explanation(namespace: str, name: str, target: Target) -> bytes:
    """Return the JSON of an explanation. Raises UnreadableError with the fix."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    return asyncio.run(_fetch_directly(path, target) if target.extender else _fetch_through_proxy(path, target))


async def _fetch_directly(path: str, target: Target) -> bytes:
    address = parse.urlsplit(target.extender)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise output.UnreadableError(f"--extender {target.extender}: give a URL such as https://localhost:8713")
    token = _read_token(target)
    if not token and target.cluster.is_given:
        token = _parse_bearer(await (await cluster_access.read_account(target.cluster)).headers())
    if token and address.scheme == "http" and not settings.Address(address.hostname, 0).is_loopback:
        raise output.UnreadableError(f"--extender {target.extender}: the token would go there unencrypted; use https")
    headers = [("Authorization", f"Bearer {token}")] if token else []
    url = target.extender.rstrip("/") + path
    status, body = await _get(url, headers, target.cluster.timeout, ssl=_build_trust(target.ca))
    return _read_answer(status, body, target.extender)


async def _fetch_through_proxy(path: str, target: Target) -> bytes:
    cluster = await _read_account(target.cluster)
    own_headers = await cluster.headers()
    token = _read_token(target) or _parse_bearer(own_headers)
    if not token:
        cause = "this kubeconfig has no token, and the extender requires one"
        raise NoExtenderError(cause, f"{cause}; {_IDENTIFY}")
    headers = [
        *own_headers.items(),
        *cluster.impersonation.list_headers(),
        (names.PROXIED_AUTHORIZATION, f"Bearer {token}"),
    ]
    connection = {"ssl": cluster.tls, "server_hostname": cluster.server_name, "proxy": cluster.proxy}
    status, body = 0, b""
    for scheme in ("https", "http"):  # the default of the manifests, and plain HTTP for Volcano
        url = f"{cluster.host}{_SERVICES}/{scheme}:{installed_names.EXTENDER}:{names.EXTENDER_PORT}/proxy{path}"
        status, body = await _get(url, headers, target.cluster.timeout, **connection)
        if status not in _BAD_GATEWAY or _is_own_error(body):
            break
    try:
        return _read_answer(status, body, "the API server's proxy", f". Or: {_FORWARD}")
    except output.UnreadableError as error:
        cause = str(error).partition(". Or: kubectl")[0]
        raise NoExtenderError(cause, str(error), has_answered=isinstance(error, NoDecisionError)) from None


def _is_own_error(body: bytes) -> bool:
    """True for an error of the extender, not of the proxy."""
    try:
        return msgspec.json.decode(body, type=_Answer).error is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _read_answer(status: int, body: bytes, where: str, instead: str = "") -> bytes:
    reason, ours = "", False
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer_body = msgspec.json.decode(body, type=_Answer)
        if status == 200 and answer_body.outcome:
            return body
        ours = answer_body.error is not None
        reason = failures.quote_message(answer_body.error.reason if answer_body.error else answer_body.message)
    if status == 200:
        fix = "check the URL, or `server:` in the kubeconfig"
        raise output.UnreadableError(f"{where} responds, but not as railwright's extender does; {fix}{instead}")
    if status == 404 and reason.startswith("no decision on"):
        raise NoDecisionError(reason)
    if status == _UNREVIEWED and ours:
        instead = "; if the extender lacks a permission, `railwright check` names it"
    elif status == 401 and ours:
        instead = f"; {_IDENTIFY}"
    elif not ours and not instead:
        raise output.UnreadableError(
            f"{where} responds, but not as railwright's extender does (status {status}); check the URL of --extender"
        )
    elif not ours:
        response = errors.ErrorResponse(status, "", reason, f"{_SERVICE}/proxy", where=where, foreign=not reason)
        raise output.UnreadableError(f"{failures.describe_response(response)}{instead}")
    raise output.UnreadableError(f"{where}: {reason or 'no explanation'} (status {status}){instead}")


async def _get(
    url: str, headers: Sequence[tuple[str, str]], seconds: float | None, **connection: Any
) -> tuple[int, bytes]:
    """Return status and body. `connection` are aiohttp's arguments for TLS and a proxy."""
    timeout = aiohttp.ClientTimeout(total=SECONDS if seconds is None else seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, headers=headers, allow_redirects=False, **connection) as answer,
        ):
            return answer.status, await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason, fix = failures.describe_connection(url, error)
        raise output.UnreadableError(f"{reason}; {fix}. To reach the extender: {_FORWARD}") from None


async def _read_account(cluster: options.ClusterOptions) -> credentials.Account:
    if not (cluster.kubeconfig or kubeconfigs.find()):
        raise output.UnreadableError(f"no kubeconfig, so give the extender's URL: {_FORWARD}")
    return await cluster_access.read_account(cluster)


def _read_token(target: Target) -> str:
    if target.token or not target.token_file:
        return target.token
    try:
        return output.read_text(target.token_file).strip()
    except output.UnreadableError as error:
        raise output.UnreadableError(f"--token-file {error}") from error


def _parse_bearer(headers: Mapping[str, str]) -> str:
    value = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _build_trust(ca: str) -> ssl.SSLContext:
    try:
        return credentials.build_client_context(ca or None)
    except (OSError, ssl.SSLError) as error:
        raise output.UnreadableError(f"--ca {ca}: {error}") from None


# --- the explanation ----------------------------------------------------------------------------------------

WORSE = frozenset({"unplaceable", "spread", "degraded"})
_COLOURS = {"placeable": "cyan", "compact": "green"}
_MAX_NODES = 20  # of each kind; -o json has all that the extender stored


class Message(msgspec.Struct, frozen=True):
    """A reason as the extender renders it: the code is stable, the message is printed."""

    code: str = ""
    message: str = ""


class HeldRail(msgspec.Struct, frozen=True):
    """A rail that a claim of the pod holds."""

    rail: str = ""
    device: str = ""


class Placement(msgspec.Struct, frozen=True):
    """Placement of the whole gang."""

    summary: Message = Message()


class Node(msgspec.Struct, frozen=True):
    """One node, as it was when the pod was scored."""

    node: str
    score: float | None = None
    leaf: str = ""
    rejection: Message | None = None
    reason: Message | None = None
    rails: Sequence[Message] = ()
    short: Sequence[Message] = ()
    degradations: Sequence[Message] = ()
    reports: Sequence[Message] = ()
    terms: dict[str, Message] = {}

    @property
    def has_room(self) -> bool:
        """True if no filter rejected the node, and it has the devices other than rails that the pod requests."""
        return self.rejection is None and not self.short


class Explanation(msgspec.Struct, frozen=True):
    """The fields of GET /explain that are printed."""

    pod: str
    scheduler: str = ""
    fabric: str = ""
    gang: str = ""
    gang_size: int = 0
    remaining: int = 0
    needs: Sequence[str] = ()
    outcome: str = ""
    why: Sequence[Message] = ()
    leaves_planned: Sequence[str] = ()
    leaves_used: int = 0
    min_leaves: int = 0
    bandwidth: float = 0.0
    bound: float = 0.0
    exact: bool = True
    placement: Placement | None = None
    scored_nodes: int = msgspec.field(default=0, name="candidate_nodes")
    nodes: Sequence[Node] = ()
    devices: Sequence[HeldRail] = ()
    node: str = ""


def read_explanation(body: bytes) -> Explanation:
    """Return the explanation in a response. Raises UnreadableError if it is not one."""
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise output.UnreadableError(f"the response is not an explanation: {error}") from None


def is_worse(explanation: Explanation) -> bool:
    """True if the pod cannot be placed, or its gang was placed worse than was possible."""
    return explanation.outcome in WORSE


def render_explanation(explanation: Explanation) -> Group:
    """Return the output for an explanation."""
    summary = f": {explanation.placement.summary.message}" if explanation.placement else ""
    place = f" on node {explanation.node}" if explanation.node else ""
    outcome = "placed" if place and explanation.outcome == "placeable" else explanation.outcome
    parts: list[RenderableType] = [
        format_line(f"Pod {explanation.pod}{place}: {_format_gang(explanation)}", "bold underline"),
        format_line(f"{outcome}{summary}", _get_style(explanation)),
    ]
    if explanation.leaves_planned and explanation.outcome == "unplaceable":
        parts.append(format_line(f"leaves with free slots: {', '.join(explanation.leaves_planned)}"))
    elif explanation.leaves_planned and not explanation.placement:
        least = f"{explanation.leaves_used}, least possible {explanation.min_leaves}"
        parts.append(format_line(f"leaves planned ({least}): {', '.join(explanation.leaves_planned)}"))
        exactness = "exact" if explanation.exact else "bounded: not every choice was tried"
        bandwidth = f"{explanation.bandwidth:.2f} of at most {explanation.bound:.2f}"
        parts.append(format_line(f"modelled bandwidth {bandwidth}, {exactness}"))
    if explanation.devices:
        parts.append(format_line(describe_held_rails((row.rail, row.device) for row in explanation.devices)))
    when = "when it was planned" if explanation.placement else "because"
    parts += [
        format_line(f"{when}: {why.message}", "yellow" if is_worse(explanation) else "") for why in explanation.why
    ]
    return Group(*parts, *_render_nodes(explanation))


def describe_held_rails(held: Iterable[tuple[str, str]]) -> str:
    """Return the line about rails and devices that claims hold."""
    return f"rails and devices of its claims: {', '.join(f'{rail} {device}'.strip() for rail, device in held)}"


def _format_gang(explanation: Explanation) -> str:
    gang = f", gang {explanation.gang}" if explanation.gang else ""
    if gang and explanation.gang_size:  # not known before the scheduler has requested scores
        gang += f" of {explanation.gang_size}, {explanation.remaining} to place then"
    by = "not requested by" if any(why.code == Code.NOT_ASKED for why in explanation.why) else "requested by"
    needs = f", needs {', '.join(explanation.needs)}" if explanation.needs else ""
    return f"fabric {explanation.fabric}, {by} {explanation.scheduler}{gang}{needs}"


def _get_style(explanation: Explanation) -> str:
    return "bold red" if is_worse(explanation) else _COLOURS.get(explanation.outcome, "")


def _render_nodes(explanation: Explanation) -> list[RenderableType]:
    fitting = [node for node in explanation.nodes if node.has_room]
    refused = [node for node in explanation.nodes if not node.has_room]
    listed = [*fitting[:_MAX_NODES], *refused[:_MAX_NODES]]
    if not listed:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, layout in (("NODE", {}), ("SCORE", {"justify": "right"}), ("LEAF", {}), ("WHY", {"ratio": 1})):
        table.add_column(title, header_style="dim", **layout)
    for node in listed:
        score = f"{node.score:.1f}" if node.has_room and node.score is not None else ""
        table.add_row(
            format_line(f"{node.node} *" if node.node == explanation.node else node.node),
            format_line(score),
            format_line(node.leaf),
            format_line(_explain_node(node), "" if node.has_room else "red"),
        )
    # filters may have rejected nodes for which no score was requested
    total = text.format_count(max(explanation.scored_nodes, len(explanation.nodes)), "node", part=len(listed))
    here = f"; * {explanation.node} runs the pod" if any(node.node == explanation.node for node in listed) else ""
    return [Text(), table, format_line(f"{total}: {len(fitting)} fit, {len(refused)} rejected{here}", "dim")]


def _explain_node(node: Node) -> str:
    """Return what is short and who uses it, then, for a node that fits, the reason of each score term."""
    shortages = [*node.rails, *node.short]
    if not node.has_room:
        return _join([*(shortages or filter(None, [node.rejection])), *node.reports])
    reasons = [*shortages, *node.degradations, *node.reports, *node.terms.values()]
    return _join(reasons) or (node.reason.message if node.reason else "")


def _join(reasons: Sequence[Message]) -> str:
    return "; ".join(reason.message for reason in reasons)


def format_line(text: str, style: str = "") -> Text:
    """Return a line of text from a cluster."""
    return Text(output.escape_controls(text), style=style)


_PIPED_WIDTH = 160  # columns without a terminal


def print_explanation(document: object, text: Group, form: str) -> None:
    """Print an explanation as a document, or as text for people."""
    if formats.is_document(form):
        formats.print_document(document, form)
        return
    console = Console(highlight=False)
    is_piped = not console.is_terminal
    if is_piped:
        console.width = _PIPED_WIDTH
    console.print(text, soft_wrap=is_piped)  # a program reads whole lines, so only the table is folded


# --- a pod that the extender does not explain ---------------------------------------------------------------


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


class _Condition(views.PodCondition, frozen=True):
    message: str | None = None


class _Status(views.PodStatus, frozen=True):
    conditions: list[_Condition] | None = None  # type: ignore[assignment]  # safe because frozen


class _Pod(views.Pod, frozen=True):
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
    warnings: Sequence[rendering.Message] = ()  # about keys of railwright that have no effect
    topology: rendering.Message | None = None  # what its workload asks of the scheduler, or why it asks for nothing
    decided_by: str = ""  # the scheduler that reads it
    unasked: str = ""  # why no scheduler asked the extender about it, as far as the pod shows


async def read(client: clients.Client, namespace: str, name: str) -> PodRecord:
    """Return the record of a pod. Raise ClusterError."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = await cluster_access.read_object(client, f"{path}/{name}", _Pod)
    if pod.metadata.name != name:
        raise failures.build_foreign(client.host, path)
    gang = membership.find_gang(pod)
    members = await watch_wire.list_objects(client, path, views.Pod) if gang else [pod]
    involved = {member.metadata.name for member in members if membership.find_gang(member) == gang} | {name}
    involved |= {pod_groups.find_pod_group(gang).rpartition("/")[2]} if gang else set()
    query = {"fieldSelector": f"source={_COMPONENT}"}
    events = await watch_wire.list_objects(client, f"/api/v1/namespaces/{namespace}/events", views.Event, query)
    about_gang = [event for event in events if event.involved_object.name in involved]
    record = _build(pod, sorted(map(_report, about_gang), key=lambda report: report.last))
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
    return bool(record.missed_label or record.workload_label) or record.outcome in WORSE


def render(record: PodRecord) -> Group:
    """Return the output for a record."""
    rails = f", rails {', '.join(record.rails)}" if record.rails else ""
    fabric = f"fabric {record.fabric}, role {record.role}{rails}" if record.fabric else "did not opt in"
    if record.workload_label:
        fabric = f"not injected, because it has no label {names.FABRIC}; {record.workload_label}"
    if record.missed_label:
        fabric = (
            f"label {names.FABRIC} {record.missed_label!r}, but not injected: the label was set after the pod's "
            "creation, the webhook was not called, or the fabric was in mode warn; set it in the pod template, then "
            "delete the pod, so that it is created again"
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
        lines.append(format_line(describe_held_rails(held) if held else of_node))
        why_skipped = map(rendering.render_recorded, (record.placement.skipped or {}).values())
        lines += [format_line(why, "yellow") for why in why_skipped]
    if record.waiting:
        lines.append(format_line(f"because: {record.waiting}", "yellow"))
    lines += [
        format_line(f"Event {event.reason}{f' ({event.count}x)' if event.count > 1 else ''}: {event.message}")
        for event in record.events
    ]
    return Group(*lines)


def _build(pod: _Pod, reports: Sequence[Report]) -> PodRecord:
    injection = intent.read_record(pod)
    node = pod.spec.node_name or ""
    outcomes = [_OUTCOMES[report.reason] for report in reports if report.reason in _OUTCOMES]
    if node:  # what was true while the gang waited is so no longer
        outcomes = [outcome for outcome in outcomes if outcome != "unplaceable"]
    unscheduled = [
        condition.message or ""
        for condition in pod.status.conditions or ()
        if (condition.type, condition.status) == ("PodScheduled", "False")
    ]
    placement = intent.read_placement(pod)
    rails = placement.rails if placement is not None and placement.devices else injection.rails  # chosen at binding
    topology = intent.read_topology(pod)
    dropped = injection.skipped.get("topology")
    topology_reason = dropped or topology.reason
    return PodRecord(
        pod=pod.metadata.full_name,
        fabric=injection.fabric,
        role=injection.role,
        rails=rails or (),
        outcome=outcomes[-1] if outcomes else "placed" if node else "waiting",
        node=node,
        placement=placement,
        waiting="" if node else "; ".join(unscheduled),
        events=reports,
        missed_label=_find_missed_label(pod),
        warnings=rendering.describe_all(keys.check_pod(pod.metadata)),
        topology=rendering.describe_recorded(topology_reason) if topology_reason is not None else None,
        decided_by=topology.scheduler,
        unasked=_describe_unasked(pod),
    )


def _describe_unasked(pod: views.Pod) -> str:
    """Return why a scheduler may not have asked about an injected pod."""
    scheduler = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
    if any(condition.reason == _GATED for condition in pod.status.conditions or ()):
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
    is_missed = intent.has_fabric_label(pod) and opt_in.is_uninjected(pod)
    return pod.metadata.labels[names.FABRIC] if is_missed else ""


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
    target = Target(
        arguments.extender, arguments.token, arguments.token_file, arguments.ca, options.get_cluster(arguments)
    )
    if _is_uninjected(namespace, name, target):
        return _explain_by_record(namespace, name, arguments, None)
    try:
        body = fetch_explanation(namespace, name, target)
    except NoExtenderError as error:
        return _explain_by_record(namespace, name, arguments, error)
    explanation = read_explanation(body)
    print_explanation(msgspec.Raw(body), render_explanation(explanation), arguments.output)
    return output.FINDINGS if is_worse(explanation) else output.OK


def _is_uninjected(namespace: str, name: str, target: Target) -> bool:
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
    namespace: str, name: str, arguments: argparse.Namespace, no_extender: NoExtenderError | None
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
    print_explanation(record, render(record), arguments.output)
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
