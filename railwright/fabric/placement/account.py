"""Why a plan is no better, in sentences: why not fewer leaves, why not more bandwidth, why the gang does not fit.

Owns the words for what the planner found. It solves nothing but the small questions "what if only these leaves?", by
the planner itself, so that a sentence cannot say otherwise than the plan. Every bandwidth in it is modelled. Asked only
where there is something to tell: a gang on one leaf at full bandwidth needs no reason.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import bandwidth, fleet, ledger, planner, standing

FULL = 0.995  # from here on a bandwidth is called full: it would be shown as 1.00
_CLOSE = 1e-6
_NAMED = 3  # leaves, causes and nodes named in one sentence
_CANDIDATES = 3  # leaves of which "what if only this one" is asked
_PREFIX = "railwright: "

Held = Callable[[str], Iterable[fleet.FleetPod | ledger.Entry]]
"""Who takes something of a node."""


class Ground(msgspec.Struct, frozen=True):
    """What a plan was made on."""

    remaining: int  # places for pods to come, each as large as the largest
    plan: planner.Plan
    supply: planner.Supply
    standings: Sequence[standing.Standing]  # by the supply's index of grades
    nodes: Mapping[str, int]  # node -> index of its standing
    mates: Mapping[topology.Domain, int]  # leaf -> members already placed
    held: Held
    offered: Callable[[], Collection[topology.Domain]]  # the leaves of which the scheduler offers a node
    alone: bool = False  # a job of one pod, which completes nodes before it looks at bandwidth
    pods: int = 0  # to come, where smaller ones share places; 0: as many as places

    @property
    def remain(self) -> str:
        """What is still to be placed, for the beginning of a sentence."""
        if self.pods <= self.remaining:
            return f"{self.remaining} pods remain"
        return f"{self.pods} pods remain, which need as much as {self.remaining} of the largest"


def is_plain(plan: planner.Plan, mates: Mapping[topology.Domain, int]) -> bool:
    """True where nothing has to be told: the whole gang on one leaf, at full bandwidth."""
    return plan.complete and len({*plan.leaves, *mates} - {topology.NOWHERE}) <= 1 and plan.bandwidth >= FULL


def continues(old: planner.Plan, old_remaining: int, new: planner.Plan, remaining: int) -> bool:
    """True where a plan is what remains of an older one, so that the older one's account still tells the reasons."""
    if remaining > old_remaining or old.complete != new.complete or old.rails != new.rails:
        return False
    if not new.complete:
        return sum(old.rooms.values()) - sum(new.rooms.values()) == old_remaining - remaining
    return abs(old.bandwidth - new.bandwidth) < _CLOSE and set(new.leaves) <= set(old.leaves)


class Account(msgspec.Struct, frozen=True):
    """What there is to tell of a plan."""

    fits: bool = True  # False: there is no room for the gang, offered or not
    why: tuple[str, ...] = ()  # the most important first; none where a plan is plain


PLAIN = Account()


def of(ground: Ground) -> Account:
    """The account of a plan on its ground."""
    plan = ground.plan
    if is_plain(plan, ground.mates):
        return PLAIN
    if not plan.complete:
        held = sum(_rooms(ground, 0, 0.0).values())
        return Account(fits=held >= ground.remaining, why=tuple(_too_little(ground, held)))
    if ground.alone:
        why = "a job of one pod completes nodes first, and of the fullest with room none gives more"
        return Account(why=(f"modelled at {plan.bandwidth:.2f} of the bandwidth: {why}",))
    return Account(why=tuple(_reasons(ground)))


def _reasons(ground: Ground) -> Iterable[str]:
    return itertools.chain(_leaves(ground), _fewer_but_slower(ground), _slower(ground), _unsure(ground.plan))


def shown(value: planner.Value) -> str:
    """A modelled bandwidth inside a sentence."""
    return "full bandwidth" if value >= FULL else f"{value:.2f} of the bandwidth"


# --- why not fewer leaves -----------------------------------------------------------------------------------


def _leaves(ground: Ground) -> Iterable[str]:
    plan, remaining = ground.plan, ground.remaining
    count = len(plan.leaves)
    if count < 2:
        return
    at = shown(plan.bandwidth)
    rooms = _rooms(ground, plan.rails, plan.bandwidth)
    largest = sorted(rooms, key=lambda leaf: (-rooms[leaf], leaf))[: count - 1]
    held = sum(rooms[leaf] for leaf in largest)
    if held < remaining:
        some = _listed([f"{topology.name_of(leaf)} {rooms[leaf]}" for leaf in largest])
        if count == 2:
            leaf = topology.name_of(largest[0])
            told = f"the largest leaf with room at {at}, {leaf}, holds {held}"
        else:
            told = f"the {count - 1} largest leaves with room at {at} hold {held} ({some})"
        yield f"{ground.remain}; {told}; {count} leaves is the least"
        return
    yield from _not_these(ground, largest)


def _not_these(ground: Ground, fewer: Sequence[topology.Domain]) -> Iterable[str]:
    """Why leaves that have the room are not taken."""
    plan = ground.plan
    some = _listed([topology.name_of(leaf) for leaf in fewer])
    weak = [told for leaf in fewer for told in _weak_uplinks(ground, leaf, plan.bandwidth)]
    shapes = {grade.shape for grade in _grades(ground, fewer) if planner.members(grade, plan.rails, plan.bandwidth)}
    mates = [leaf for leaf in ground.mates if leaf]
    kept_back = _kept_back(ground, fewer)
    if kept_back:
        yield f"fewer leaves ({some}) have the room, but {kept_back}"
    elif weak:
        if plan.least == len(fewer):
            return  # `_fewer_but_slower` says the same, with the bandwidth they would give
        yield f"fewer leaves ({some}) have the room, but {_listed(weak)}"
    elif mates and not set(mates) <= set(fewer):
        names = _listed([f"{topology.name_of(leaf)} ({ground.mates[leaf]})" for leaf in mates])
        yield f"fewer leaves ({some}) have the room, but mates are placed already on {names}, whose room is taken first"
    elif plan.shape is not None and shapes - {plan.shape}:
        on = f"nodes of type {plan.shape}" if plan.shape else "nodes of no known type"
        yield f"fewer leaves ({some}) have the room, but not on {on} alone; a gang is kept on one type"
    else:
        yield f"fewer leaves ({some}) have the room, but not every choice was looked at"


def _kept_back(ground: Ground, leaves: Iterable[topology.Domain]) -> str:
    """That the scheduler offers no node of some leaves; "" where it does of all."""
    offered = ground.offered()
    missing = [topology.name_of(leaf) for leaf in leaves if leaf not in offered]
    return f"the scheduler offers no node of {_listed(missing)}" if missing else ""


def _fewer_but_slower(ground: Ground) -> Iterable[str]:
    """Fewer leaves that would hold it if bandwidth did not matter, and what they would give."""
    plan = ground.plan
    if not 0 < plan.least < len(plan.leaves):
        return
    rooms = _rooms(ground, 0, 0.0)
    order = sorted(rooms, key=lambda leaf: (-rooms[leaf], leaf))
    choices = [order[: plan.least]]
    if plan.least == 1:
        choices = [[leaf] for leaf in order[:_CANDIDATES] if rooms[leaf] >= ground.remaining]
    found = [(_only(ground, choice).bandwidth, choice) for choice in choices]
    value, chosen = max(found, key=lambda each: each[0])
    names = _listed([topology.name_of(leaf) for leaf in chosen])
    would = f"{plan.least} {'leaf' if plan.least == 1 else 'leaves'} ({names}) would hold it"
    if value > plan.bandwidth - _CLOSE:
        return
    weak: list[str] = []
    if len(chosen) > 1:
        weak = [told for leaf in chosen for told in _weak_uplinks(ground, leaf, value + _CLOSE)]
    why = _listed([*weak, *_flaws(ground, chosen, value)])
    yield f"{would}, but at {value:.2f} of the bandwidth{': ' + why if why else ''}"


def _only(ground: Ground, leaves: Sequence[topology.Domain]) -> planner.Plan:
    some = {leaf: ground.supply.leaves[leaf] for leaf in leaves}
    return planner.solve(ground.remaining, msgspec.structs.replace(ground.supply, leaves=some))


# --- why not more bandwidth ---------------------------------------------------------------------------------


def _slower(ground: Ground) -> Iterable[str]:
    plan, remaining = ground.plan, ground.remaining
    if plan.bandwidth >= FULL:
        return
    if not any(leaf != topology.NOWHERE for leaf in plan.leaves):
        yield f"only nodes without a domain label hold the {remaining} pods that remain: label them"
        return
    at_most = f"no more than {plan.bandwidth:.2f} of the bandwidth"
    better = _rooms(ground, plan.rails, plan.bandwidth + _CLOSE)
    if sum(better.values()) >= remaining:
        weak = [told for leaf in plan.leaves for told in _weak_uplinks(ground, leaf, plan.bandwidth + 2 * _CLOSE)]
        why = _listed(weak) or _kept_back(ground, better)
        yield f"{at_most}: {why or 'not every choice was looked at'}"
        return
    flawed = _listed(_flaws(ground, ground.supply.leaves, plan.bandwidth))
    told = f"{at_most}: better nodes hold {sum(better.values())} of the {remaining} pods"
    yield told + (f"; {flawed}" if flawed else "")
    if lost := _lost_rails(ground):
        yield f"the gang runs without {_listed(lost)}: too few nodes have {'it' if len(lost) == 1 else 'them'} free"


def _lost_rails(ground: Ground) -> list[str]:
    """Wanted rails that the plan goes without."""
    named = next((_rail_names(each) for each in ground.standings if each.rails), [])
    shares = next((grade.shares for grade in ground.supply.grades if grade.shares), ())
    return [name for bit, name in enumerate(named[: len(shares)]) if not ground.plan.rails >> bit & 1]


def _rail_names(stands: standing.Standing) -> list[str]:
    return [name for pool in stands.rails for name in pool.need.rails]


def _unsure(plan: planner.Plan) -> Iterable[str]:
    if not plan.exact:
        gap = max(0.0, plan.bound - plan.bandwidth)
        yield (
            f"not every choice was looked at: another could be better by at most {gap:.2f} of the bandwidth"
            if gap >= 1 - FULL
            else "not every choice was looked at: another could leave less room over, at the same bandwidth"
        )


# --- why it does not fit ------------------------------------------------------------------------------------


def _too_little(ground: Ground, held: int) -> Iterable[str]:
    if held >= ground.remaining:
        offered = f"{ground.remain}; the nodes offered hold {sum(ground.plan.rooms.values())}"
        yield f"{offered}; {_kept_back(ground, _rooms(ground, 0, 0.0)) or 'the scheduler kept the others back'}"
        return
    wanted = next((_wanted(each) for each in ground.standings), "")
    yield f"{ground.remain}{wanted}; the free nodes hold {held}"
    totals: dict[int, int] = {}
    for kinds in ground.supply.leaves.values():
        for kind, nodes in kinds.items():
            totals[kind] = totals.get(kind, 0) + nodes
    lacking: Counter[str] = Counter()
    for kind, nodes in totals.items():
        if nodes and not ground.supply.grades[kind].alignments:
            lacking[hindrance(ground.standings[kind])] += nodes
    if lacking:
        yield "; ".join(
            f"{nodes} {'node' if nodes == 1 else 'nodes'}: {cause}" for cause, nodes in lacking.most_common(_NAMED)
        )
    yield from _holders(ground)


def _wanted(stands: standing.Standing) -> str:
    names = _rail_names(stands)
    if not names:
        return ""
    return f", each with {names[0]}..{names[-1]}" if len(names) > _NAMED else f", each with {', '.join(names)}"


def hindrance(stands: standing.Standing) -> str:
    """Why nodes of this kind hold no member; "" where they do."""
    if not stands.facts.eligible:
        return "cordoned, not ready, tainted or not selected by the pod"
    if lacking := short(stands):
        return shortage(stands, lacking[0])
    if stands.refusal:
        return stands.refusal.removeprefix(_PREFIX)
    return "" if stands.facts.others else "too little CPU, memory or room for pods"


def short(stands: standing.Standing) -> list[str]:
    """The accelerators and pools of which such a node has too little free for one pod."""
    return [name for name, (free, _, taken) in stands.packed.items() if free < taken]


def shortage(stands: standing.Standing, resource: str) -> str:
    """How much of one resource is free, in numbers."""
    free, allocatable, taken = stands.packed[resource]
    left = f"{max(0, free) // resources.UNIT} of {allocatable // resources.UNIT} free"
    return f"{_label(stands, resource)} has {left}, {taken // resources.UNIT} needed"


def _label(stands: standing.Standing, resource: str) -> str:
    return next((pool.need.label for pool in stands.rails if pool.need.resource == resource), resource)


def _holders(ground: Ground) -> Iterable[str]:
    """Of a few nodes that lack an accelerator or a rail, who holds it."""
    lacking = {
        kind: names[0]
        for kind, stands in enumerate(ground.standings)
        if stands.facts.eligible and not stands.grade.alignments and (names := short(stands))
    }
    told: list[str] = []
    for node, kind in ground.nodes.items():
        if kind not in lacking:
            continue
        resource = lacking[kind]
        keys = [pod.key for pod in ground.held(node) if pod.requests.get(resource, 0) > 0]
        if keys:
            told.append(f"{_label(ground.standings[kind], resource)} of {node} is held by {_listed(keys)}")
        if len(told) == _NAMED:
            break
    if told:
        yield "; ".join(told)


# --- words and sums -----------------------------------------------------------------------------------------


def flaws(stands: standing.Standing) -> tuple[str, ...]:
    """What keeps a node of this kind from giving its members all bandwidth."""
    found = []
    grade = stands.grade
    if grade.alignments and grade.alignments[0] < 1:
        found.append("NUMA splits")
    for pool in stands.rails:
        if not pool.sufficient:
            found.append(f"{pool.need.label} {'not free' if pool.allocatable > 0 else 'dead or absent'}")
        elif not pool.healthy:
            found.append(f"{pool.need.label} degraded")
    if not found and grade.shares and sum(grade.shares) < 1 - _CLOSE:
        found.append("NICs shared with other pods")
    return tuple(found)


def _flaws(ground: Ground, leaves: Iterable[topology.Domain], least: planner.Value) -> list[str]:
    """The flaws of the nodes of these leaves that give no more than that, with how many nodes have each."""
    nodes: Counter[str] = Counter()
    for leaf in leaves:
        for kind, count in ground.supply.leaves[leaf].items():
            grade = ground.supply.grades[kind]
            better = planner.members(grade, ground.plan.rails, least + 2 * _CLOSE)
            if grade.alignments and not better:
                nodes.update(dict.fromkeys(flaws(ground.standings[kind]), count))
            elif better < len(grade.alignments) and grade.crowded:
                nodes[f"NICs too few for {better + 1} pods of the gang"] += count
    return [f"{flaw} on {count} {'node' if count == 1 else 'nodes'}" for flaw, count in nodes.most_common(_NAMED)]


def _weak_uplinks(ground: Ground, leaf: topology.Domain, least: planner.Value) -> list[str]:
    """The domains on the way up from a leaf whose uplinks carry less than that."""
    found = []
    for level, ratio in enumerate(ground.supply.oversubscription[: len(leaf)]):
        domain = leaf[level:]
        nodes = ground.supply.sizes.get(domain, 1)
        carried = bandwidth.uplink(nodes, ratio, links=ground.supply.links)
        if domain[0] and carried < least:
            found.append(uplinks(domain, nodes, ratio, carried, links=ground.supply.links))
    return found


def uplinks(  # noqa: PLR0913, PLR0917 - one argument a number of the sentence
    domain: topology.Domain,
    nodes: int,
    ratio: float,
    carried: planner.Value,
    crossings: int = 1,
    links: float = 1.0,
) -> str:
    """What the uplinks of a domain of so many nodes carry for each of its crossings."""
    size = f"{nodes} {'node' if nodes == 1 else 'nodes'}, {ratio:g}:1"
    if links > 1:
        size += ", those of the rails that the gang does not use too"
    each = f" for each of {crossings} crossings" if crossings > 1 else ""
    return f"the uplinks of {topology.name_of(domain)} ({size}) carry {carried:.2f}{each}"


def _rooms(ground: Ground, rails: int, least: planner.Value) -> dict[topology.Domain, int]:
    counts = [
        planner.members(grade, rails, least) if rails or least else len(grade.alignments)
        for grade in ground.supply.grades
    ]
    rooms = {}
    for leaf, kinds in ground.supply.leaves.items():
        room = 0
        for kind, nodes in kinds.items():  # a thousand times for some clusters: no generator
            room += counts[kind] * nodes
        if room and leaf:
            rooms[leaf] = room
    return rooms


def _grades(ground: Ground, leaves: Iterable[topology.Domain]) -> Iterable[planner.Grade]:
    supply = ground.supply
    return (supply.grades[kind] for leaf in leaves for kind, nodes in supply.leaves[leaf].items() if nodes)


def _listed(items: Sequence[str]) -> str:
    items = list(dict.fromkeys(items))
    rest = len(items) - _NAMED
    return ", ".join(items[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
