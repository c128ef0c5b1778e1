"""One decision for both schedulers: which nodes fit, how good each is, and why.

A function of the ask, the fleet and the ledger; `Desk` only remembers what it worked out for them before. Volcano's and
kube-scheduler's scales, codes and shapes are the business of their wire modules.
"""

import bisect
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from fabric import resources, topology
from fabric.placement import (
    account,
    ask,
    board,
    claims,
    crew,
    fleet,
    ledger,
    planner,
    plans,
    profile,
    standing,
    verdicts,
)
from fabric.placement.terms import locality
from fabric.policy import model, presets

ROWS = 50  # nodes of a decision that are kept for explanations, and as many refused ones
FULL_OFFER = 100  # both schedulers offer all feasible nodes up to this many, and a sample above (minFeasibleNodes)


class _View:
    """A board as one ask sees it: with the exceptions that the ask's own offers, mates and old place make."""

    def __init__(
        self,
        question: ask.Ask,
        current: board.Board,
        exceptions: Mapping[str, int],
        holders: Callable[[str], tuple[verdicts.Holder, ...]],
    ) -> None:
        self.question = question
        self.holders = holders
        self.board = current
        self.exceptions = exceptions  # node -> index of its standing

    def index(self, node: str) -> int | None:
        found = self.exceptions.get(node)
        return found if found is not None else self.board.kinds.get(node)

    def stands(self, node: str) -> standing.Standing | None:
        found = self.index(node)
        return None if found is None else self.board.standings[found]

    def leaf(self, node: str) -> topology.Domain:
        return self.board.leaves.get(node, topology.NOWHERE)

    def row(self, node: str, score: float) -> verdicts.Row:
        stands = self.stands(node)
        return verdicts.Row(node, score, stands, self.leaf(node), self.holders(node) if _lacks_rail(stands) else ())

    def refused_row(self, node: str) -> verdicts.Row:
        return verdicts.Row(node, 0.0, self.stands(node), self.leaf(node), self.holders(node))

    def rows(self, names: Iterable[str], most: int, scores: Mapping[str, float]) -> list[verdicts.Row]:
        chosen: dict[str, None] = {}
        refused: dict[str, None] = {}
        for name in names:
            if len(chosen) >= most:
                break
            if name in scores:
                chosen[name] = None
        standings, all_kinds = self.board.standings, self.kinds()
        unfit = {kind for kind, stands in enumerate(standings) if stands.refusal}
        if unfit:
            some = (name for name, kind in zip(scores, map(all_kinds.get, scores), strict=True) if kind in unfit)
            refused = dict.fromkeys(itertools.islice(some, most))
        lacking: dict[int | None, bool] = {}  # the nodes of a leaf are of few kinds
        leaves = self.board.leaves
        rows = []
        for name in {**chosen, **refused}:
            kind = all_kinds.get(name)
            stands = None if kind is None else standings[kind]
            if kind not in lacking:
                lacking[kind] = _lacks_rail(stands)
            holders = self.holders(name) if lacking[kind] else ()
            rows.append(verdicts.Row(name, scores[name], stands, leaves.get(name, topology.NOWHERE), holders))
        return rows

    def offered_leaves(self) -> set[topology.Domain]:
        leaves = self.board.leaves
        return {leaves[name] for name in self.question.nodes if name in leaves}

    def kinds(self) -> Mapping[str, int]:
        """Node -> index of its standing, the ask's own exceptions in it."""
        if not self.exceptions:
            return self.board.kinds
        return {name: kind for name in self.question.nodes if (kind := self.index(name)) is not None}

    def unknown(self) -> int:
        """How many of the nodes the cache has not seen."""
        nodes = self.question.nodes
        return len(nodes) - len(self.board.kinds.keys() & nodes) if nodes else 0


def _lacks_rail(stands: standing.Standing | None) -> bool:
    return stands is not None and any(not rail.sufficient for rail in stands.rails)


class Decision:
    """The outcome for all nodes of one ask. Words are found only when somebody asks for them."""

    def __init__(
        self, view: _View, planning: _View, scores: dict[str, float], wording: verdicts.Wording, size: int
    ) -> None:
        self.scores = scores  # node -> 0..100, 0 for refused and unknown ones
        self.wording = wording
        self.gang_size = size
        self._view = view
        self._planning = planning  # the same for the members that the plan is made for

    @property
    def plan(self) -> planner.Plan:
        """The leaves for the rest of the gang."""
        return self.wording.plan

    @property
    def gang(self) -> locality.GangStanding:
        """How the gang stands to its plan."""
        return self.wording.gang

    @property
    def unknown(self) -> int:
        """How many of the nodes the cache has not seen."""
        return self._view.unknown()

    def reasons(self) -> account.Account:
        """Why the plan is no better. To be asked at once: the boards go with the cluster."""
        view, gang = self._planning, self.wording.gang
        return account.of(
            account.Ground(
                remaining=gang.remaining,
                plan=self.plan,
                supply=_supply(view.question, view),
                standings=view.board.standings,
                nodes=view.board.kinds,
                mates=gang.mates,
                held=view.holders,
                offered=view.offered_leaves,
            )
        )

    def rows(self, most: int) -> list[verdicts.Row]:
        """Some nodes worth showing: those of the leaf that is due, of the plan, then any, and refused ones as well."""
        return self._view.rows(self._worth_showing(), most, self.scores)

    def _worth_showing(self) -> Iterable[str]:
        leaves = self._view.board.nodes
        for leaf in (self.gang.due, *self.gang.plan):
            if leaf is not None:
                yield from leaves.get(leaf, ())
        yield from self.scores

    @property
    def verdicts(self) -> Mapping[str, verdicts.Verdict]:
        """All nodes, in words."""
        return {name: self.wording.verdict(self._view.row(name, score)) for name, score in self.scores.items()}


class Screening(msgspec.Struct, frozen=True):
    """Which nodes fit at all; the rest with the sentence that refuses them."""

    kept: Sequence[str]
    busy: Mapping[str, str]
    never: Mapping[str, str]
    unknown: int
    rows: Sequence[verdicts.Row]  # some of the refused


class Desk:
    """Decides over one fleet and one ledger, and remembers the boards of the profiles it meets."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._state = state
        self._book = book
        self._boards = board.Boards(state, book)
        self._claims = claims.Claims(state, book)
        self._standing_plans = plans.Plans(state, book)

    def warm(self, document: model.FabricPolicy) -> None:
        """Work out ahead of a request what the pods of each fabric will need of every node; about a millisecond."""
        for fabric in document.fabrics.values():
            if fabric.rails:
                self._boards.warm(presets.domains(fabric.placement), tuple(rail.name for rail in fabric.rails))

    def decide(self, question: ask.Ask) -> Decision:
        """Score every node of the question."""
        gang = crew.of(question, self._state, self._book)
        alone = crew.is_alone(question, self._state)
        view = self._view(question, question.requests, gang, alone=alone)
        planning = view
        if gang.member is not question.requests:
            planning = self._view(question, gang.member, gang, alone=alone)
        found, standing_ = self._plan(question, gang, planning)
        wording = verdicts.Wording(plan=found, gang=standing_, terms=view.board.terms)
        return Decision(view, planning, _scores(question, view, found, standing_), wording, gang.size)

    def towards(self, question: ask.Ask) -> board.Board:
        """How all nodes stand now to pods like the asking one."""
        alone = crew.is_alone(question, self._state)
        return self._boards.of(profile.of(question, question.requests, alone=alone))

    def screen(self, question: ask.Ask) -> Screening:
        """Only which nodes fit; the gang is not planned."""
        nobody = crew.Crew(size=1, placed=(), waiting=(), unseen=0, member=question.requests)
        view = self._view(question, question.requests, nobody, alone=crew.is_alone(question, self._state))
        nodes, standings = question.nodes, view.board.standings
        told = [stands.refusal for stands in standings]
        if not any(told) and not view.exceptions:
            return Screening(kept=nodes, busy={}, never={}, unknown=view.unknown(), rows=())
        known = view.kinds()
        kinds = [known.get(name, -1) for name in nodes]
        fits = [*(not refusal for refusal in told), True]  # the last one: the cache has not seen the node
        never = {kind for kind, stands in enumerate(standings) if stands.refusal and stands.unresolvable}
        kept = list(itertools.compress(nodes, map(fits.__getitem__, kinds)))
        refused = {name: kind for name, kind in zip(nodes, kinds, strict=True) if not fits[kind]}
        shown = [view.refused_row(name) for name in itertools.islice(refused, ROWS)]
        return Screening(
            kept=kept,
            busy={name: told[kind] for name, kind in refused.items() if kind not in never},
            never={name: told[kind] for name, kind in refused.items() if kind in never} if never else {},
            unknown=kinds.count(-1),
            rows=shown,
        )

    def _view(self, question: ask.Ask, requests: resources.Amounts, gang: crew.Crew, *, alone: bool) -> _View:
        current = self._boards.of(profile.of(question, requests, alone=alone))
        exceptions = _exceptions(question, current, gang, self._state, self._book)

        def holders(node: str) -> tuple[verdicts.Holder, ...]:
            everybody: tuple[verdicts.Holder, ...] = (*self._state.on_node(node), *self._book.on_node(node))
            return tuple(each for each in everybody if each.uid != question.uid)

        return _View(question, current, exceptions, holders)

    def _plan(self, question: ask.Ask, gang: crew.Crew, view: _View) -> tuple[planner.Plan, locality.GangStanding]:
        mates: dict[topology.Domain, int] = {}
        for _, _, node in gang.placed:
            leaf = view.leaf(node)
            mates[leaf] = mates.get(leaf, 0) + 1
        if not question.domains:
            nothing = locality.GangStanding(
                due=None, plan=(), rooms={}, mates=mates, remaining=gang.remaining, located=False
            )
            return planner.NOTHING, nothing
        near = crew.nearest(question.rank, gang.placed, view.board.leaves)
        sampled = len(question.nodes) >= FULL_OFFER
        supply = _supply(question, view)
        found = self._standing_plans.of(question.gang, view.board, gang, supply) if sampled else None
        if found is None:
            reached = self._standing_plans.reached(question.gang, gang)
            found = planner.solve(gang.remaining, supply, near, reached=reached)
            found = self._claims.solved(question.gang, found, gang.remaining, supply, near, reached=reached)
            if sampled:
                self._standing_plans.keep(question.gang, view.board, gang, supply, found)
        self._standing_plans.planned(question.gang, gang, found)
        self._claims.put(
            question.gang, gang.remaining, found, max((len(each.alignments) for each in supply.grades), default=1)
        )
        at = bisect.bisect_left(gang.waiting, question.rank)
        is_in = at < len(gang.waiting) and gang.waiting[at] == question.rank
        rank = question.rank if is_in else gang.waiting[0]
        due = crew.due(rank, gang, found.leaves, found.rooms, view.board.leaves)
        if due is not None and view.board.nodes[due].keys().isdisjoint(question.nodes):
            # a sample without the leaf this rank is due in: the best of what is offered
            offered = view.offered_leaves()
            some = {leaf: kinds for leaf, kinds in supply.leaves.items() if leaf in offered}
            found = planner.solve(gang.remaining, msgspec.structs.replace(supply, leaves=some), near)
            due = next(iter(found.leaves), None)
        return found, locality.GangStanding(
            due=due,
            plan=found.leaves,
            rooms=found.rooms,
            mates=mates,
            remaining=gang.remaining,
            counted=gang.member is question.requests,
            reserve=locality.NO_RESERVE if due is None else _least_reserve(supply, due, found),
        )


def decide(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> Decision:
    """One decision by a desk that remembers nothing."""
    return Desk(state, book).decide(question)


def _exceptions(
    question: ask.Ask, current: board.Board, gang: crew.Crew, state: fleet.Fleet, book: ledger.Ledger
) -> Mapping[str, int]:
    """Nodes that this ask sees otherwise than its board: standings made for it alone."""
    found: dict[str, int] = {}
    owned: dict[str, list[resources.Amounts]] = {}
    for _, uid, node in gang.placed:
        # a mate's NIC is shared at no loss; a node without room for another member need not be looked at
        if (kind := current.kinds.get(node)) is not None and current.standings[kind].grade.alignments:
            pod = state.pods.get(uid)
            entry = book.entry(uid)
            owned.setdefault(node, []).append(pod.requests if pod else entry.requests if entry else {})
    home = {entry.node for entry in (book.entry(question.uid),) if entry}
    home |= {pod.node for pod in (state.pods.get(question.uid),) if pod and pod.node}
    made: dict[tuple[int, int], int] = {}  # equal offers are one object (asks)
    for name, offer in question.offers.items():
        kind = current.kinds.get(name)
        if kind is None:
            continue
        if name in owned or name in home:
            free = _offered(current, offer)
            facts = current.facts(state.nodes[name], free, owned.get(name, ()), mine=question.uid)
            found[name] = current.index(current.with_free(facts, free, emptied=offer.emptied))
            continue
        pair = (kind, id(offer))
        if (index := made.get(pair)) is None:
            index = made[pair] = _as_offered(current, kind, offer)
        if index != kind:
            found[name] = index
    for name in home - found.keys():
        if name in state.nodes:
            free = current.free_of(name, mine=question.uid)
            found[name] = current.index(current.facts(state.nodes[name], free, owned.get(name, ()), mine=question.uid))
    found |= _shared_with_mates(current, {name: held for name, held in owned.items() if name not in found})
    return found


def _shared_with_mates(current: board.Board, owned: Mapping[str, Sequence[resources.Amounts]]) -> Mapping[str, int]:
    """The standings of nodes of which mates hold so much, of which a large gang has thousands."""
    made: dict[tuple[int, tuple[int, ...]], int] = {}
    found = {}
    for name, held in owned.items():
        pair = current.kinds[name], current.own(held)
        if pair not in made:
            made[pair] = current.index(current.standings[pair[0]].facts._replace(own=pair[1]))
        found[name] = made[pair]
    return found


def _as_offered(current: board.Board, kind: int, offer: ask.Offer) -> int:
    """The standing of a node of this kind with what its scheduler says is free; mostly the same."""
    facts = current.standings[kind].facts
    said = current.with_free(facts, _offered(current, offer), emptied=offer.emptied)
    return kind if said == facts else current.index(said)


def _offered(current: board.Board, offer: ask.Offer) -> resources.Amounts:
    """What an offer holds free: now, or where that is too little, once the releasing pods are gone."""
    enough = all(offer.free.get(need.resource, 0) >= need.amount for need in current.profile.needs)
    return offer.free if enough or offer.promised is None else offer.promised


def _supply(question: ask.Ask, view: _View) -> planner.Supply:
    """What every leaf could hold, and the leaves of which a node is offered.

    A short offer is the whole truth. A long one is a sample: nodes the scheduler kept back count as well, as far as
    the cache shows that the pod could go there. So do, in the leaves of a short offer, those a scheduler that
    announces nothing kept back: a mate whose binding is still unseen may have them (ruling 24), and until it is seen
    it counts among those to be placed.
    """
    current = view.board
    leaves: dict[topology.Domain, dict[int, int]]
    if len(question.nodes) >= FULL_OFFER:
        leaves = dict(current.supply)
    elif question.offers:
        leaves = {}
        for name in question.nodes:
            if (kind := view.index(name)) is not None:
                counts = leaves.setdefault(current.leaves[name], {})
                counts[kind] = counts.get(kind, 0) + 1
        return _supplied(view, leaves)
    else:
        leaves = {leaf: current.supply[leaf] for leaf in view.offered_leaves()}
    for name, kind in view.exceptions.items():
        leaf = current.leaves.get(name, topology.NOWHERE)
        old = current.kinds.get(name)
        if leaf in leaves and old is not None and old != kind:
            counts = leaves[leaf] = dict(leaves[leaf])
            counts[old] -= 1
            counts[kind] = counts.get(kind, 0) + 1
    return _supplied(view, leaves)


def _supplied(view: _View, leaves: Mapping[topology.Domain, Mapping[int, int]]) -> planner.Supply:
    return planner.Supply(
        grades=[stands.grade for stands in view.board.standings],
        leaves=leaves,
        sizes=view.board.sizes,
        oversubscription=view.question.fabric.placement.oversubscription,
    )


def _scores(question: ask.Ask, view: _View, found: planner.Plan, gang: locality.GangStanding) -> dict[str, float]:
    """Every node's points: what it is worth by itself, and the tier of its leaf on top."""
    current = view.board
    try:
        found_points = operator.itemgetter(*question.nodes)(current.points_of) if len(question.nodes) > 1 else ()
        scores = dict(zip(question.nodes, found_points, strict=False))
    except KeyError:  # a node the cache has not seen
        scores = {}
    if len(scores) != len(question.nodes):
        scores = {name: current.points_of.get(name, 0.0) for name in question.nodes}
    for name, kind in view.exceptions.items():
        if name in scores:
            scores[name] = current.base[kind]
    if gang.due is None:
        return scores
    usable = [not stands.refusal for stands in current.standings]
    worth = [
        fits and (not gang.counted or found.worth(stands.grade))
        for fits, stands in zip(usable, current.standings, strict=True)
    ]
    for leaf, names in _leaves_in_play(current, gang):
        tier = locality.tier(leaf, gang)
        points = [current.points(tier)] * len(current.standings)
        if leaf == gang.due and gang.counted:
            spared = current.points(locality.PLANNED)
            points = [
                spared if stands.grade.reserve > gang.reserve else each
                for each, stands in zip(points, current.standings, strict=True)
            ]
        good: Sequence[bool] = worth if tier >= locality.PLANNED else usable
        for name in names:
            if name in scores and good[index := _index(view, name)]:
                scores[name] += points[index]
    return scores


def _least_reserve(supply: planner.Supply, due: topology.Domain, found: planner.Plan) -> int:
    """Of the nodes that can take the pod in the leaf it is due in, those that are to be taken first."""
    grades = (supply.grades[kind] for kind, nodes in supply.leaves.get(due, {}).items() if nodes > 0)
    return min((grade.reserve for grade in grades if found.worth(grade)), default=locality.NO_RESERVE)


def _index(view: _View, name: str) -> int:
    found = view.index(name)
    return -1 if found is None else found


def _leaves_in_play(
    current: board.Board, gang: locality.GangStanding
) -> Iterable[tuple[topology.Domain, Mapping[str, None]]]:
    """The leaves whose tier is not the last: those of the plan, and those beside the one that is due."""
    due, planned = gang.due, {gang.due, *gang.plan}
    for leaf, names in current.nodes.items():
        if due is not None and (leaf in planned or locality.is_beside(leaf, due)):
            yield leaf, names
