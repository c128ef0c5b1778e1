"""Runs `railwright explain pod`: asks a running extender why a pod is on its node, and renders its answer.

Without the right to ask the extender, `pod_records` explains the pod from its own namespace.

Fields that this version does not know are ignored, so that it can read the answer of a newer extender.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from railwright.cli import cluster_access, formats, options, output, verification
from railwright.cli.explanation import extender_client
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs
from railwright.fabric import text, views
from railwright.fabric.reasons.codes import Code

WORSE = frozenset({"unplaceable", "spread", "degraded"})
_COLOURS = {"placeable": "cyan", "compact": "green"}
_MAX_NODES = 20  # of each kind; -o json has all that the extender stored


class Message(msgspec.Struct, frozen=True):
    """A reason as the extender renders it: the code is stable, the message is printed."""

    code: str = ""
    message: str = ""


class Term(Message, frozen=True):
    """A term of a node's score."""

    value: float = 0.0


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
    terms: dict[str, Term] = {}

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


def read(body: bytes) -> Explanation:
    """Return the explanation in a response. Raises UnreadableError if it is not one."""
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise output.UnreadableError(f"the response is not an explanation: {error}") from None


def is_finding(explanation: Explanation) -> bool:
    """True if the pod cannot be placed, or its gang was placed worse than was possible."""
    return explanation.outcome in WORSE


def render(explanation: Explanation) -> Group:
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
        format_line(f"{when}: {why.message}", "yellow" if is_finding(explanation) else "") for why in explanation.why
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
    return "bold red" if is_finding(explanation) else _COLOURS.get(explanation.outcome, "")


def _render_nodes(explanation: Explanation) -> list[RenderableType]:
    fitting = [node for node in explanation.nodes if node.has_room]
    refused = [node for node in explanation.nodes if not node.has_room]
    listed = [*fitting[:_MAX_NODES], *refused[:_MAX_NODES]]
    if not listed:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, settings in (("NODE", {}), ("SCORE", {"justify": "right"}), ("LEAF", {}), ("WHY", {"ratio": 1})):
        table.add_column(title, header_style="dim", **settings)
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


def explain(arguments: argparse.Namespace) -> int:
    """Print the extender's explanation, or that the pod is not injected. Return 0 if it is or can be placed optimally.

    Return 1 if not. Raise UnreadableError and ClusterError.
    """
    from railwright.cli.explanation import pod_records

    namespace, name = ("", arguments.pod) if arguments.form else _parse_pod(arguments.pod, arguments.namespace)
    namespace = namespace or arguments.namespace or kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    if arguments.form:
        name = _choose_pod(arguments, namespace)
    target = extender_client.Target(
        arguments.extender, arguments.token, arguments.token_file, arguments.ca, options.get_cluster(arguments)
    )
    if _is_uninjected(namespace, name, target):
        return pod_records.explain(namespace, name, arguments, None)
    try:
        body = extender_client.fetch_explanation(namespace, name, target)
    except extender_client.NoExtenderError as error:
        return pod_records.explain(namespace, name, arguments, error)
    explanation = read(body)
    print_explanation(msgspec.Raw(body), render(explanation), arguments.output)
    return output.FINDINGS if is_finding(explanation) else output.OK


def _is_uninjected(namespace: str, name: str, target: extender_client.Target) -> bool:
    """True if the pod can be read and was not injected. The extender would explain it as if it had its rails."""
    from railwright.cli.explanation import pod_records

    if target.extender and not target.cluster.is_given:  # such as an extender on a snapshot, without a cluster
        return False

    async def read(client: clients.Client) -> bool:
        return await pod_records.is_uninjected(client, namespace, name)

    with contextlib.suppress(errors.ClusterError, output.UnreadableError):  # asking the extender says what is wrong
        return cluster_access.run(target.cluster, read)
    return False


def _choose_pod(arguments: argparse.Namespace, namespace: str) -> str:
    """Return the first pod of a job or gang that waits for a node, otherwise its first one, and print which.

    Raises UnreadableError and ClusterError.
    """

    async def find_pods(client: clients.Client) -> Sequence[views.Pod]:
        return await verification.find_pods(client, namespace, arguments.form, arguments.pod)

    members = cluster_access.run(options.get_cluster(arguments), find_pods)
    chosen = next((pod for pod in members if not pod.spec.node_name), members[0])
    which = "the first" if chosen.spec.node_name else "the first that waits"
    title = f"{arguments.form}/{arguments.pod}: pod {chosen.metadata.name}"
    pods = text.format_count(len(members), "pod")
    print(f"railwright: {output.escape_controls(title)}, {which} of {pods}", file=sys.stderr)
    return chosen.metadata.name


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


def _parse_pod(pod: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name), the namespace "" if none is given. Raise UnreadableError."""
    first, slash, rest = pod.partition("/")
    if not pod or (slash and (not first or not rest or "/" in rest)):
        raise output.UnreadableError(f"explain pod {pod or '(no pod)'}: give pod/NAME -n NAMESPACE (for a file: ./pod)")
    if slash and namespace not in ("", first):
        raise output.UnreadableError(f"explain pod {pod}: -n {namespace} is another namespace; give one of them")
    return (first, rest) if slash else (namespace, pod)
