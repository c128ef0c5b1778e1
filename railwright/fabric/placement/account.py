"""Explains why a plan is no better: why not fewer leaves, why not more bandwidth, why the gang does not fit.

Questions like "what if only these leaves were used" are answered by the planner itself, so that explanations agree with
the plan. All bandwidths are modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import bandwidth, fleet, ledger, planner, standing

FULL = 0.995  # bandwidths from here on are called full: they are formatted as 1.00
_CLOSE = 1e-6
_NAMED = 3  # leaves, causes and nodes listed in one message
_CANDIDATES = 3  # leaves for which a plan on this leaf alone is tried
_PREFIX = "railwright: "

Held = Callable[[str], Iterable[fleet.FleetPod | ledger.Entry]]
"""Node -> bound and assumed pods on it."""


class Ground(msgspec.Struct, frozen=True):
    """The input of an explanation: a plan and the cluster state it is based on."""

    remaining: int  # slots that the unplaced pods need, each of the size of the largest pod
    plan: planner.Plan
    supply: planner.Supply
    standings: Sequence[standing.Standing]  # by index of class, which is the supply's index of grades
    nodes: Mapping[str, int]  # node -> index of its class
    mates: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    held: Held
    offered: Callable[[], Collection[topology.Domain]]  # leaves with at least one offered node
    alone: bool = False  # single-pod job: partly used nodes are preferred to bandwidth
    pods: int = 0  # unplaced pods, if smaller ones share slots; 0: as many as slots

    @property
    def remain(self) -> str:
        """Return the start of a message: the number of unplaced pods."""
        if self.pods <= self.remaining:
            return f"{self.remaining} pods remain"
        return f"{self.pods} pods remain, which need as much as {self.remaining} of the largest"


def is_plain(plan: planner.Plan, mates: Mapping[topology.Domain, int]) -> bool:
    """True if the plan needs no explanation: the whole gang on one leaf, at full bandwidth."""
    return plan.complete and len({*plan.leaves, *mates} - {topology.NOWHERE}) <= 1 and plan.bandwidth >= FULL


def continues(old: planner.Plan, old_remaining: int, new: planner.Plan, remaining: int) -> bool:
    """True if `new` is the unplaced remainder of `old`, so the old explanation still applies."""
    if remaining > old_remaining or old.complete != new.complete or old.rails != new.rails:
        return False
    if not new.complete:
        return sum(old.rooms.values()) - sum(new.rooms.values()) == old_remaining - remaining
    return abs(old.bandwidth - new.bandwidth) < _CLOSE and set(new.leaves) <= set(old.leaves)


class Account(msgspec.Struct, frozen=True):
    """The explanation of a plan."""

    fits: bool = True  # False: the cluster has too few slots for the gang, offered or not
    why: tuple[str, ...] = ()  # most important first; () if the plan is optimal


PLAIN = Account()


def of(ground: Ground) -> Account:
    """Explain a plan."""
    plan = ground.plan
    if is_plain(plan, ground.mates):
        return PLAIN
    if not plan.complete:
        held = sum(_rooms(ground, 0, 0.0).values())
        return Account(fits=held >= ground.remaining, why=tuple(_too_little(ground, held)))
    if ground.alone:
        why = "a single-pod job fills partly used nodes first, and none of the fullest that fit has more"
        return Account(why=(f"modelled at {plan.bandwidth:.2f} of the bandwidth: {why}",))
    return Account(why=tuple(_reasons(ground)))


def _reasons(ground: Ground) -> Iterable[str]:
    return itertools.chain(_leaves(ground), _fewer_but_slower(ground), _slower(ground), _unsure(ground.plan))


def shown(value: planner.Value) -> str:
    """Format a modelled bandwidth."""
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
            told = f"the largest leaf at {at}, {leaf}, has {held} {'slot' if held == 1 else 'slots'}"
        else:
            told = f"the {count - 1} largest leaves at {at} have {held} slots ({some})"
        yield f"{ground.remain}; {told}; {count} leaves is the minimum"
        return
    yield from _not_these(ground, largest)


def _not_these(ground: Ground, fewer: Sequence[topology.Domain]) -> Iterable[str]:
    """Explain why fewer leaves with enough slots are not used."""
    plan = ground.plan
    some = _listed([topology.name_of(leaf) for leaf in fewer])
    weak = [told for leaf in fewer for told in _weak_uplinks(ground, leaf, plan.bandwidth)]
    shapes = {grade.shape for grade in _grades(ground, fewer) if planner.members(grade, plan.rails, plan.bandwidth)}
    mates = [leaf for leaf in ground.mates if leaf]
    kept_back = _kept_back(ground, fewer)
    if kept_back:
        yield f"fewer leaves ({some}) have enough slots, but {kept_back}"
    elif weak:
        if plan.least == len(fewer):
            return  # `_fewer_but_slower` explains it, with the bandwidth of these leaves
        yield f"fewer leaves ({some}) have enough slots, but {_listed(weak)}"
    elif mates and not set(mates) <= set(fewer):
        names = _listed([f"{topology.name_of(leaf)} ({ground.mates[leaf]})" for leaf in mates])
        yield (
            f"fewer leaves ({some}) have enough slots, but other pods of the gang are placed on {names}: these are "
            "filled first"
        )
    elif plan.shape is not None and shapes - {plan.shape}:
        on = f"nodes of type {plan.shape}" if plan.shape else "nodes of unknown type"
        yield f"fewer leaves ({some}) have enough slots, but not on {on} alone; a gang uses one node type"
    else:
        yield f"fewer leaves ({some}) have enough slots, but not every choice was tried"


def _kept_back(ground: Ground, leaves: Iterable[topology.Domain]) -> str:
    """Return a message with the leaves of which the scheduler offers no node, or "" if there are none."""
    offered = ground.offered()
    missing = [topology.name_of(leaf) for leaf in leaves if leaf not in offered]
    return f"the scheduler offers no node of {_listed(missing)}" if missing else ""


def _fewer_but_slower(ground: Ground) -> Iterable[str]:
    """Explain which fewer leaves have enough slots at a lower bandwidth."""
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
    would = f"{plan.least} {'leaf has' if plan.least == 1 else 'leaves have'} enough slots ({names})"
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
        yield f"only nodes without a topology label have slots for the {remaining} pods that remain: label these nodes"
        return
    at_most = f"at most {plan.bandwidth:.2f} of the bandwidth"
    better = _rooms(ground, plan.rails, plan.bandwidth + _CLOSE)
    if sum(better.values()) >= remaining:
        weak = [told for leaf in plan.leaves for told in _weak_uplinks(ground, leaf, plan.bandwidth + 2 * _CLOSE)]
        why = _listed(weak) or _kept_back(ground, better)
        yield f"{at_most}: {why or 'not every choice was tried'}"
        return
    flawed = _listed(_flaws(ground, ground.supply.leaves, plan.bandwidth))
    told = f"{at_most}: faster nodes have slots for {sum(better.values())} of the {remaining} pods"
    yield told + (f"; {flawed}" if flawed else "")
    if lost := _lost_rails(ground):
        yield f"the gang runs without {_listed(lost)}: too few nodes have {'it' if len(lost) == 1 else 'them'} free"


def _lost_rails(ground: Ground) -> list[str]:
    """Return the needed rails that the plan does not use."""
    named = next((_rail_names(each) for each in ground.standings if each.rails), [])
    shares = next((grade.shares for grade in ground.supply.grades if grade.shares), ())
    return [name for bit, name in enumerate(named[: len(shares)]) if not ground.plan.rails >> bit & 1]


def _rail_names(stands: standing.Standing) -> list[str]:
    return [name for pool in stands.rails for name in pool.need.rails]


def _unsure(plan: planner.Plan) -> Iterable[str]:
    if not plan.exact:
        gap = max(0.0, plan.bound - plan.bandwidth)
        yield (
            f"not every choice was tried: another could be better by at most {gap:.2f} of the bandwidth"
            if gap >= 1 - FULL
            else "not every choice was tried: another could be tighter at the same bandwidth"
        )


# --- why it does not fit ------------------------------------------------------------------------------------


def _too_little(ground: Ground, held: int) -> Iterable[str]:
    if held >= ground.remaining:
        offered = f"{ground.remain}; the offered nodes have slots for {sum(ground.plan.rooms.values())}"
        yield f"{offered}; {_kept_back(ground, _rooms(ground, 0, 0.0)) or 'the scheduler does not offer the others'}"
        return
    wanted = next((_wanted(each) for each in ground.standings), "")
    yield f"{ground.remain}{wanted}; the cluster has slots for {held}"
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
    """Return why nodes of this class have no slot, or "" if they have one."""
    if not stands.facts.eligible:
        return "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity"
    if lacking := short(stands):
        return shortage(stands, lacking[0])
    if stands.refusal:
        return stands.refusal.removeprefix(_PREFIX)
    return "" if stands.facts.others else "too little CPU or memory, or too many pods"


def short(stands: standing.Standing) -> list[str]:
    """Return the accelerators and pools of which such a node has too few free for one pod."""
    return [name for name, (free, _, taken) in stands.packed.items() if free < taken]


def shortage(stands: standing.Standing, resource: str) -> str:
    """Format how much of one resource is free and needed."""
    free, allocatable, taken = stands.packed[resource]
    left = f"{max(0, free) // resources.UNIT} of {allocatable // resources.UNIT} free"
    return f"{_label(stands, resource)} has {left}, {taken // resources.UNIT} needed"


def _label(stands: standing.Standing, resource: str) -> str:
    return next((pool.need.label for pool in stands.rails if pool.need.resource == resource), resource)


def _holders(ground: Ground) -> Iterable[str]:
    """Name the pods that use the missing accelerator or rail, for a few nodes."""
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
            told.append(f"{_label(ground.standings[kind], resource)} on {node} is used by {_listed(keys)}")
        if len(told) == _NAMED:
            break
    if told:
        yield "; ".join(told)


# --- words and sums -----------------------------------------------------------------------------------------


def flaws(stands: standing.Standing) -> tuple[str, ...]:
    """Return what keeps nodes of this class below full bandwidth."""
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
    """Return the degradations of nodes of these leaves at or below bandwidth `least`, with the number of nodes."""
    nodes: Counter[str] = Counter()
    for leaf in leaves:
        for kind, count in ground.supply.leaves[leaf].items():
            grade = ground.supply.grades[kind]
            better = planner.members(grade, ground.plan.rails, least + 2 * _CLOSE)
            if grade.alignments and not better:
                nodes.update(dict.fromkeys(flaws(ground.standings[kind]), count))
            elif better < len(grade.alignments) and grade.crowded:
                nodes[f"too few NICs for {better + 1} pods of the gang"] += count
    return [f"{flaw} on {count} {'node' if count == 1 else 'nodes'}" for flaw, count in nodes.most_common(_NAMED)]


def _weak_uplinks(ground: Ground, leaf: topology.Domain, least: planner.Value) -> list[str]:
    """Return messages for the domains above a leaf with uplinks that carry less than `least`."""
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
    """Format what the uplinks of a domain of `nodes` nodes carry for each of its crossings."""
    size = f"{nodes} {'node' if nodes == 1 else 'nodes'}, {ratio:g}:1"
    if links > 1:
        size += ", including the uplinks of rails that the gang does not use"
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
        for kind, nodes in kinds.items():  # hot path: a loop is faster than a generator
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
