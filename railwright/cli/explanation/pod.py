"""Runs `railwright explain pod`: shows the injection of a pod, and why it is on its node or why its gang waits.

Reads the pod with the rights of the user, and asks a running extender, which knows the gang and scores of nodes.
Without the right to ask it, the pod's condition is shown. Fields that this version does not know are ignored, so that
it can read the answer of a newer extender.
"""

import argparse
import contextlib
import operator
from typing import Any
from urllib import parse

import msgspec

from railwright.cli import cluster_access, formats, job_pods, output, policy_sources, scheduler_configuration
from railwright.cli.explanation import opt_ins, recorded
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, resources, watch_wire
from railwright.fabric import admission, names, text, views
from railwright.fabric.injection import accelerators, keys, opt_in
from railwright.fabric.overview import overview_types
from railwright.fabric.placement.explain import node_explanation
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.workloads import frameworks

# --- what the cluster shows of the pod ----------------------------------------------------------------------

_ENDED, _SCHEDULED, _UNSCHEDULED = "ended", "scheduled", "unscheduled"
_STATES = {_ENDED: "ended ({phase})", _SCHEDULED: "scheduled on {node}", _UNSCHEDULED: "not scheduled"}
"""States of a single pod with their texts. States of gangs come from the extender only."""
_MAX_MESSAGE = 500  # characters of an Event's message


class PodFacts(recorded.Injection, frozen=True, kw_only=True):
    """The facts about a pod in its own object, and in the extender's answer."""

    pod: str
    node: str
    state: str  # of its gang by the extender's answer; without one, what is known of the pod alone: a key of _STATES
    waiting: str  # the scheduler's reason
    phase: str
    preflight_failure: str  # the message of the init container that has stopped it
    preflight_warning: str  # the message of the init container that has passed and warns
    kubelet_warning: str = ""  # the newest Warning Event of kubelet, while a pod with a node is not running
    uninjected: str = ""  # why it is not injected although it or its workload opted in, and the fix
    unasked: str = ""  # why Volcano does not ask the extender about it; "" if it does, or if that is not known
    placement: overview_types.Explanation | None = None  # the extender's answer


def build_facts(pod: job_pods.Pod) -> PodFacts:
    """Return the facts about a pod that its own object shows."""
    node = pod.spec.node_name or ""
    unscheduled = [
        condition.message or ""
        for condition in pod.status.conditions or ()
        if (condition.type, condition.status) == ("PodScheduled", "False")
    ]
    warnings = keys.check_pod(pod.metadata)
    return PodFacts(
        **(msgspec.structs.asdict(recorded.describe_injection(pod)) | {"warnings": warnings}),
        pod=pod.metadata.full_name,
        node=node,
        state=_ENDED if pod.status.has_ended else _SCHEDULED if node else _UNSCHEDULED,
        waiting="" if node else "; ".join(unscheduled),
        phase=pod.status.phase,
        preflight_failure=pod.preflight_failure,
        preflight_warning=pod.preflight_warning,
    )


async def _explain_uninjected(client: clients.Client, pod: job_pods.Pod, facts: PodFacts) -> PodFacts:
    """Return the facts with the reason why a pod is not injected although it or its workload opted in."""
    opted_in = await opt_ins.find_opt_in(client, pod) if opt_in.is_uninjected(pod) else opt_ins.OptIn(None)
    if opted_in.label is not None:
        return msgspec.structs.replace(facts, uninjected=await opt_ins.describe_uninjected(client, pod, opted_in))
    facts = msgspec.structs.replace(facts, opt_in_unknown=opted_in.unknown, unaccelerated=opted_in.unaccelerated)
    if names.FABRIC in pod.metadata.labels or names.INJECTION in pod.metadata.annotations:
        return facts
    uninjected, warnings = "", list(facts.warnings)
    for workload in await opt_ins.read_owners(client, pod.metadata):
        title = f"{workload.kind.name} {workload.metadata.name}"
        unpassed = (warning.text for warning in keys.check_label(workload.kind, workload.label, workload.templates))
        if not uninjected and (problem := keys.explain_uncopied_label(workload) or next(unpassed, "")):
            causes = "; ".join(filter(None, (await opt_ins.find_cluster_cause(client), f"{title}: {problem}")))
            uninjected = f"not injected, because the pod has no label {names.FABRIC}; {causes}"
        warnings += [warning.prefix_with(title) for warning in keys.check_workload(workload)]
    return msgspec.structs.replace(facts, uninjected=uninjected, warnings=warnings)


async def _explain_unasked(client: clients.Client, pod: views.Pod) -> str:
    """Return why Volcano does not call the extender for a pod, and the fix.

    Return "" if it does, if its ConfigMap may not be read, and for kube-scheduler, whose configuration is a file.
    """
    configmap = None
    if scheduler_configuration.get_scheduler(pod) == "volcano":
        with contextlib.suppress(errors.ClusterError):
            configmap = await watch_wire.find_object(client, resources.VOLCANO_CONFIGURATION, dict[str, Any])
    plugins = scheduler_configuration.list_plugins(scheduler_configuration.read_volcano_configuration(configmap))
    managed = [*map(str, frameworks.get_list(plugins.get("extender"), scheduler_configuration.MANAGED))]
    if not managed or not accelerators.list_mentioned_resources(pod).isdisjoint(managed):
        return ""
    return (
        "Volcano places this pod without railwright's extender: Volcano asks only about pods that request "
        f"{' or '.join(managed)}; complete Volcano's managedResources by what railwright policy scheduler-config "
        "prints, then create the pod again"
    )


# --- the extender's answer, through the API server's proxy --------------------------------------------------

# The proxy strips the header of a token, so the extender gets it in a header of its own.
_SERVICES = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services"
_IDENTIFY = (
    "give a token of an account that may get pods in that namespace: kubectl create token NAME, and --token-file FILE"
)
_FIXES = {  # of errors of the extender; it answers 503 if the API server does not review a token
    401: f"; {_IDENTIFY}",
    503: "; if the extender lacks a permission, `railwright check` names it",
}
_PROXY_ERRORS = {  # of the API server, which has not asked the extender
    403: f"you may not ask the extender; Role {installed_names.USER_ROLE} of namespace {installed_names.NAMESPACE} "
    "allows it",
    404: f"no extender is installed in namespace {installed_names.NAMESPACE}",
}
_PROXY = "the API server's proxy"
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme


class NoExtenderError(output.UnreadableError):
    """Raised if the extender gave no explanation. The message has the cause and the fix."""


async def ask_extender(client: clients.Client, namespace: str, name: str, given: str) -> overview_types.Explanation:
    """Return the explanation of a pod. Uses the token `given`, otherwise the kubeconfig's. Raises NoExtenderError."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    token = given or await client.get_token()
    if not token:
        raise NoExtenderError(f"this kubeconfig has no token, and the extender requires one; {_IDENTIFY}")
    cause = ""
    for scheme in ("https", "http"):  # the default of the manifests, and plain HTTP for Volcano
        proxy = f"{_SERVICES}/{scheme}:{installed_names.EXTENDER}:{names.EXTENDER_PORT}/proxy{path}"
        try:
            body = await client.get(proxy, headers={names.PROXIED_AUTHORIZATION: f"Bearer {token}"})
            return msgspec.json.decode(body, type=overview_types.Explanation)
        except errors.ApiError as error:
            cause, may_be_scheme = _describe_failure(error)
            if not may_be_scheme:
                break
        except watch_wire.UNREADABLE:
            cause = f"{_PROXY} responds, but not as railwright's extender does; check `server:` in the kubeconfig"
            break
    raise NoExtenderError(cause)


def _describe_failure(error: errors.ApiError) -> tuple[str, bool]:
    """Return the cause and the fix, and True if the other scheme (https or http) may work.

    The error is the extender's own, or that of the API server's proxy.
    """
    body: Any = None
    with contextlib.suppress(*watch_wire.UNREADABLE):
        body = msgspec.json.decode(error.body)
    if own := frameworks.get_mapping(body, "error"):
        reason = errors.quote_message(str(own.get("reason") or "")) or "no explanation"
        return f"{_PROXY}: {reason} (status {error.status}){_FIXES.get(error.status, '')}", False
    reason = errors.quote_message(str(frameworks.get_mapping(body).get("message") or ""))
    if reason and error.status in _PROXY_ERRORS:
        return _PROXY_ERRORS[error.status], False
    if reason and error.status in _BAD_GATEWAY:
        return f"{_PROXY} cannot reach the extender: {reason}; to see why: railwright check", True
    return error.sentence, error.status in _BAD_GATEWAY


# --- the text -----------------------------------------------------------------------------------------------

_MAX_NODES = 20  # of each kind; -o json has all that the extender answered
_STYLES = {
    overview_types.NEVER: "bold red",
    overview_types.SPREAD: "yellow",
    overview_types.PLACED: "green",
}


def print_facts(facts: PodFacts) -> None:
    """Print the injection, then the extender's explanation, otherwise the state of the pod."""
    place = f" on node {facts.node}" if facts.node else ""
    injection = facts.uninjected or (facts.summary if facts.fabric else facts.no_opt_in or "did not opt in")
    output.print_styled((f"Pod {facts.pod}{place}: {injection}", "bold"))
    if facts.preflight_failure:
        output.print_styled((facts.preflight_failure, "bold red"))
    if facts.preflight_warning:
        output.print_styled((facts.preflight_warning, "yellow"))
    if facts.kubelet_warning:
        output.print_styled((f"not running: {facts.kubelet_warning}", "yellow"))
    recorded.print_injection(facts)
    if facts.unasked:
        output.print_styled((f"warning: {facts.unasked}", "yellow"))
    if facts.placement is not None:
        _print_placement(facts.placement)
        return
    if facts.fabric and not facts.uninjected:
        print(_STATES[facts.state].format(phase=facts.phase, node=facts.node))
    if facts.waiting:
        output.print_styled((f"because: {facts.waiting}", "yellow"))


def _print_placement(explanation: overview_types.Explanation) -> None:
    gang, style = explanation.gang, _STYLES.get(explanation.gang.state, "")
    output.print_styled(
        (f"{gang.state}: {_describe_gang(gang, explanation.pod)}, scheduler {explanation.scheduler}", style)
    )
    if explanation.needs:
        output.print_styled((f"needs {', '.join(explanation.needs)}", ""))
    if explanation.devices:
        held = pod_usage.format_held_rails(explanation.devices)
        output.print_styled((f"rails and devices of the pod's claims: {held}", ""))
    for why in gang.why:
        output.print_styled((f"because: {why.text}", style))
    _print_nodes(explanation)


def _describe_gang(gang: overview_types.Gang, pod: str) -> str:
    """Return the numbers of a pod's gang, as in the columns of `railwright gangs`. A lone pod is its own gang."""
    members = "" if gang.key == pod else f" of gang {gang.name}"
    parts = [f"{gang.placed} of {text.format_count(gang.size, 'pod')}{members} placed"]
    if gang.leaves:
        least = f", {gang.min_leaves} possible" if gang.min_leaves else ""
        parts.append(f"{text.format_count(gang.leaves, 'leaf')}{least}")
    if gang.best is not None:
        has = f"{gang.bandwidth:.2f}, " if gang.bandwidth is not None else ""
        parts.append(f"modelled bandwidth {has}{gang.best:.2f} possible")
    return ", ".join(parts)


_COLUMNS = (
    formats.Column("NODE"),
    formats.Column("SCORE", right=True),
    formats.Column("LEAF"),
    formats.Column("WHY", wrap=True),
)


def _print_nodes(explanation: overview_types.Explanation) -> None:
    fitting = [node for node in explanation.nodes if node.fits]
    refused = [node for node in explanation.nodes if not node.fits]
    listed = [*fitting[:_MAX_NODES], *refused[:_MAX_NODES]]
    if not listed:
        return
    rows = [
        (
            f"{node.node} *" if node.node == explanation.node else node.node,
            f"{node.score:.1f}" if node.fits else "",
            node.leaf,
            _explain_node(node),
        )
        for node in listed
    ]
    print()
    formats.print_table(_COLUMNS, rows, styles=["" if node.fits else "red" for node in listed])
    total = text.format_count(max(explanation.candidate_nodes, len(explanation.nodes)), "node", part=len(listed))
    here = f"; * {explanation.node} runs the pod" if any(node.node == explanation.node for node in listed) else ""
    output.print_styled((f"{total}: {len(fitting)} fit, {len(refused)} rejected{here}", "dim"))


def _explain_node(node: node_explanation.NodeExplanation) -> str:
    """Return what the node lacks, and for a node that fits the reason of each score term."""
    causes = [node.rejection, *node.reasons] if node.rejection else node.reasons
    terms = node.terms.values() if node.fits else ()
    return "; ".join([*(cause.text for cause in causes), *(term.message for term in terms)])


# --- the command --------------------------------------------------------------------------------------------


def explain_pod(arguments: argparse.Namespace, form: str, name: str) -> int:
    """Print the injection of a pod, and the placement of its gang. Raise UnreadableError and ClusterError.

    `form` is a kind of `job_pods.parse_object`; one of its pods is explained. Return 1 if the pod opted in and was not
    injected, if its preflight failed, or if the gang never fits or is spread; otherwise 0.
    """
    namespace, name = job_pods.resolve_name(arguments, form, name)
    token = output.read_text(arguments.token_file).strip() if arguments.token_file else ""

    async def read_facts(client: clients.Client) -> tuple[PodFacts, str]:
        chosen = name if form == "pod" else await _choose_pod(client, namespace, form, name)
        return await _read_facts(client, namespace, chosen, token)

    record, note = cluster_access.run_with_client(arguments, read_facts)
    if formats.is_document(arguments.output):
        formats.print_document(record, arguments.output)
    else:
        print_facts(record)
    if note:
        output.print_note(note)
    is_worse = record.state in (overview_types.NEVER, overview_types.SPREAD)
    return output.FINDINGS if record.uninjected or is_worse or record.preflight_failure else output.OK


async def _read_facts(client: clients.Client, namespace: str, name: str, token: str) -> tuple[PodFacts, str]:
    """Return the facts about a pod, and why they lack the extender's answer. Raise UnreadableError and ClusterError.

    The extender is not asked about pods that have ended or are not injected: it would explain the latter as if they had
    their rails.
    """
    pod = await job_pods.read_pod(client, namespace, name)
    record = await _explain_uninjected(client, pod, build_facts(pod))
    if record.uninjected or not record.fabric:
        return record, ""
    warnings = admission.lint_recorded(pod, await policy_sources.find_readable_policy(client))
    record = msgspec.structs.replace(record, warnings=(*record.warnings, *warnings))
    if pod.status.has_ended:
        return record, ""
    if record.node and pod.status.phase == job_pods.PENDING and not record.preflight_failure:
        record = msgspec.structs.replace(record, kubelet_warning=await _find_kubelet_warning(client, pod))
    if record.rails:
        record = msgspec.structs.replace(record, unasked=await _explain_unasked(client, pod))
    try:
        answer = await ask_extender(client, namespace, name, token)
    except NoExtenderError as error:
        return record, f"without scores of nodes: {error}"
    return msgspec.structs.replace(record, state=answer.gang.state, placement=answer), ""


async def _find_kubelet_warning(client: clients.Client, pod: job_pods.Pod) -> str:
    """Return the newest Warning Event of kubelet about a pod; "" if there is none, or without the right to list Events.

    An example is FailedCreatePodSandBox of a pod that hangs in CNI, which its status does not show.
    """
    selector = f"involvedObject.uid={pod.metadata.uid},source=kubelet,type=Warning"
    events: list[views.Event] = []
    with contextlib.suppress(errors.ClusterError):
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/events"
        events = await watch_wire.list_objects(client, path, views.Event, {"fieldSelector": selector})
    timed = [(event.last_timestamp or event.event_time or "", event) for event in events]
    if not timed:
        return ""
    time, event = max(timed, key=operator.itemgetter(0))
    message = text.truncate(" ".join(event.message.split()), _MAX_MESSAGE)
    return f"Event {event.reason} of {time}: {message}"


async def _choose_pod(client: clients.Client, namespace: str, form: str, name: str) -> str:
    """Return and print the pod of a job or gang to explain. Raise UnreadableError and ClusterError."""
    members = await job_pods.find_pods(client, namespace, form, name)
    living = [pod for pod in members if not pod.status.has_ended]
    choices = {  # by preference
        "the first whose preflight failed": [pod for pod in members if pod.preflight_failure],
        "the first that waits": [pod for pod in living if not pod.spec.node_name],
        "the first that is not running": [pod for pod in living if pod.status.phase == job_pods.PENDING],
        "the first that has not ended": living,
        "the first": members,
    }
    which, pods = next((which, pods) for which, pods in choices.items() if pods)
    chosen = pods[0].metadata.name
    output.print_note(f"{form}/{name}: pod {chosen}, {which} of {text.format_count(len(members), 'pod')}")
    return chosen
