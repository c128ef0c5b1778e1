"""How the extender's explanation of a pod looks: what came of the gang, why, then node by node.

Owns form and what counts as a finding. All text of the answer passes through `output.visible`: names come from a
cluster.
"""

from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from railwright.cli import output

_WORSE = frozenset({"unplaceable", "spread", "degraded"})
_COLOURS = {"placeable": "cyan", "compact": "green"}
_SHOWN = 20  # nodes of each kind; -o json has all that are kept


class Reason(msgspec.Struct, frozen=True):
    """Why something is so: the code is stable, the message is shown."""

    code: str = ""
    message: str = ""


class Term(Reason, frozen=True):
    """A term of a node's score."""

    value: float = 0.0


class Placement(msgspec.Struct, frozen=True):
    """Where the whole gang is."""

    summary: Reason = Reason()


class Node(msgspec.Struct, frozen=True):
    """One node, as the pod's decision saw it."""

    node: str
    score: float | None = None
    leaf: str = ""
    rejection: Reason | None = None
    reason: Reason | None = None
    rails: Sequence[Reason] = ()
    short: Sequence[Reason] = ()
    degradations: Sequence[Reason] = ()
    terms: dict[str, Term] = {}


class Explanation(msgspec.Struct, frozen=True):
    """The answer of GET /explain, as far as it is shown."""

    pod: str
    scheduler: str = ""
    fabric: str = ""
    gang: str = ""
    gang_size: int = 0
    remaining: int = 0
    needs: Sequence[str] = ()
    outcome: str = ""
    why: Sequence[Reason] = ()
    leaves_planned: Sequence[str] = ()
    leaves_used: int = 0
    min_leaves: int = 0
    bandwidth: float = 0.0
    bound: float = 0.0
    exact: bool = True
    placement: Placement | None = None
    nodes_judged: int = 0
    nodes: Sequence[Node] = ()


def read(body: bytes) -> Explanation:
    """The answer. Raises UnreadableError where it is none."""
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise output.UnreadableError(f"the answer is no explanation: {error}") from None


def is_finding(told: Explanation) -> bool:
    """True where the pod cannot be placed, or its gang was placed worse than had been possible."""
    return told.outcome in _WORSE


def render(told: Explanation) -> Group:
    """The whole answer, top to bottom."""
    parts: list[RenderableType] = [
        _line(f"Pod {told.pod}: {_of(told)}", "bold underline"),
        _line(f"{told.outcome}{': ' + told.placement.summary.message if told.placement else ''}", _colour(told)),
    ]
    if told.leaves_planned and told.outcome == "unplaceable":
        parts.append(_line(f"leaves with some room: {', '.join(told.leaves_planned)}"))
    elif told.leaves_planned and not told.placement:
        least = f"{told.leaves_used}, least possible {told.min_leaves}"
        parts.append(_line(f"leaves planned ({least}): {', '.join(told.leaves_planned)}"))
        parts.append(_line(f"modelled bandwidth {told.bandwidth:.2f} of at most {told.bound:.2f}, {_exact(told)}"))
    when = "when it was planned" if told.placement else "because"
    parts += [_line(f"{when}: {why.message}", "yellow" if is_finding(told) else "") for why in told.why]
    return Group(*parts, *_nodes(told))


def _of(told: Explanation) -> str:
    gang = f", gang {told.gang} of {told.gang_size}, {told.remaining} to place then" if told.gang else ""
    needs = f", needs {', '.join(told.needs)}" if told.needs else ""
    return f"fabric {told.fabric}, asked by {told.scheduler}{gang}{needs}"


def _exact(told: Explanation) -> str:
    return "exact" if told.exact else "bounded: not every choice was looked at"


def _colour(told: Explanation) -> str:
    return "bold red" if is_finding(told) else _COLOURS.get(told.outcome, "")


def _nodes(told: Explanation) -> list[RenderableType]:
    fitting = [node for node in told.nodes if node.rejection is None]
    refused = [node for node in told.nodes if node.rejection is not None]
    shown = [*fitting[:_SHOWN], *refused[:_SHOWN]]
    if not shown:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, options in (("NODE", {}), ("SCORE", {"justify": "right"}), ("LEAF", {}), ("WHY", {"ratio": 1})):
        table.add_column(title, header_style="dim", **options)
    for node in shown:
        score = "" if node.rejection or node.score is None else f"{node.score:.1f}"
        table.add_row(
            _line(node.node), _line(score), _line(node.leaf), _line(_why(node), "red" if node.rejection else "")
        )
    return [Text(), table, _line(f"{len(shown)} of the {told.nodes_judged} nodes that were judged", "dim")]


def _why(node: Node) -> str:
    """The numbers first: what is short and who holds it; of a node that fits, each term's reason."""
    shortages = [*node.rails, *node.short]
    if node.rejection is not None:
        return _join(shortages) or node.rejection.message
    return _join([*shortages, *node.degradations, *node.terms.values()]) or (node.reason.message if node.reason else "")


def _join(reasons: Sequence[Reason]) -> str:
    return "; ".join(reason.message for reason in reasons)


def _line(text: str, style: str = "") -> Text:
    return Text(output.visible(text), style=style)
