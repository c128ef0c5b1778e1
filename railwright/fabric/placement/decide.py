"""One decision for both schedulers: which nodes fit, how good each is, and why.

A function of the ask, the fleet and the ledger; `Desk` only remembers what it worked out for them before. Volcano's and
kube-scheduler's scales, codes and shapes are the business of their wire modules.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology, workload
from railwright.fabric.placement import (
    account,
    ask,
    board,
    claims,
    crew,
    fleet,
    ledger,
    lone,
    outlook,
    planner,
    plans,
    points,
    profile,
    verdicts,
)
from railwright.fabric.placement.terms import locality
from railwright.fabric.policy import model, presets

ROWS = 50  # nodes of a decision that are kept for explanations, and as many refused ones


class Decision:
    """The outcome for all nodes of one ask. Words are found only when somebody asks for them."""

    def __init__(
        self,
        view: outlook.Outlook,
        planning: outlook.Outlook,
        scores: dict[str, float],
        wording: verdicts.Wording,
        size: int,
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
                remaining=gang.places,
                pods=gang.remaining,
                plan=self.plan,
                supply=outlook.supply(view.question, view),
                standings=view.board.standings,
                nodes=view.board.kinds,
                mates=gang.mates,
                held=view.holders,
                offered=view.offered_leaves,
                alone=view.board.profile.alone,
            )
        )

    def rows(self, most: int) -> list[verdicts.Row]:
        """Some nodes worth showing: those of the leaf that is due, of the plan, then any, and refused ones as well."""
        return self._view.rows(self._worth_showing(), most, self.scores)

    def row(self, node: str) -> verdicts.Row:
        """One node that was asked about."""
        return self._view.row(node, self.scores.get(node, 0.0))

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
        return Decision(view, planning, points.of(question, view, found, standing_), wording, gang.size)

    def taken_back(self, gang: workload.GangKey) -> None:
        """A scheduler took back what it had placed of a gang: nothing is left to it until it is asked about again."""
        self._claims.drop(gang)

    def towards(self, question: ask.Ask) -> board.Board:
        """How all nodes stand now to pods like the asking one."""
        alone = crew.is_alone(question, self._state)
        return self._boards.of(profile.of(question, question.requests, alone=alone))

    def screen(self, question: ask.Ask) -> Screening:
        """Only which nodes fit; the gang is not planned."""
        asked = self._book.uncommitted(question.uid)
        nobody = crew.Crew(
            size=1, placed=(), waiting=(), unseen=0, pods=0, member=question.requests, ring=(), asked=asked
        )
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

    def _view(self, question: ask.Ask, requests: resources.Amounts, gang: crew.Crew, *, alone: bool) -> outlook.Outlook:
        current = self._boards.of(profile.of(question, requests, alone=alone))
        exceptions = outlook.exceptions(question, current, gang, self._state, self._book)

        def holders(node: str) -> tuple[verdicts.Holder, ...]:
            everybody: tuple[verdicts.Holder, ...] = (*self._state.on_node(node), *self._book.on_node(node))
            return tuple(each for each in everybody if each.uid != question.uid)

        return outlook.Outlook(question, current, exceptions, holders)

    def _plan(
        self, question: ask.Ask, gang: crew.Crew, view: outlook.Outlook
    ) -> tuple[planner.Plan, locality.GangStanding]:
        mates: dict[topology.Domain, int] = {}
        for _, _, node in gang.placed:
            leaf = view.leaf(node)
            mates[leaf] = mates.get(leaf, 0) + 1
        if not question.domains:
            nothing = locality.GangStanding(
                due=None, plan=(), rooms={}, mates=mates, remaining=gang.pods, places=gang.remaining, located=False
            )
            return planner.NOTHING, nothing
        sampled = len(question.nodes) >= outlook.FULL_OFFER
        first = lone.choose(view) if view.board.profile.alone else None
        sampled = sampled and first is None
        supply = outlook.supply(question, view) if first is None else first.supply
        found = self._standing_plans.of(question.gang, view.board, gang, supply) if sampled else None
        if found is None:
            reached = self._standing_plans.reached(question.gang, gang)
            placed = _mates(question, gang, view, reached)
            found = planner.solve(gang.remaining, supply, placed)
            found = self._claims.solved(question.gang, found, gang, supply, placed, view.board.leaves)
            if sampled:
                self._standing_plans.keep(question.gang, view.board, gang, supply, found)
        self._standing_plans.planned(question.gang, gang, found)
        self._claims.put(
            question.gang, gang.remaining, found, max((len(each.alignments) for each in supply.grades), default=1)
        )
        if first is not None:
            found = msgspec.structs.replace(found, bound=max(found.bound, first.bound))
        due = crew.due(gang.place_of(question.rank), gang, found.leaves, found.rooms, view.board.leaves)
        if due is not None and view.board.nodes[due].keys().isdisjoint(question.nodes):
            # a sample without the leaf this rank is due in: the best of what is offered
            offered = view.offered_leaves()
            some = {leaf: kinds for leaf, kinds in supply.leaves.items() if leaf in offered}
            offer = msgspec.structs.replace(supply, leaves=some)
            found = planner.solve(gang.remaining, offer, _mates(question, gang, view))
            due = next(iter(found.leaves), None)
        return found, locality.GangStanding(
            due=due,
            plan=found.leaves,
            rooms=found.rooms,
            mates=mates,
            remaining=gang.pods,
            places=gang.remaining,
            completes=first is not None and first.completes,
            counted=gang.member is question.requests,
            reserve=locality.NO_RESERVE if due is None else points.least_reserve(supply, due, found),
        )


def _mates(question: ask.Ask, gang: crew.Crew, view: outlook.Outlook, reached: planner.Value = 1.0) -> planner.Mates:
    """What the planner has to know of the placed mates."""
    near, ahead = crew.nearest(question.rank, gang, view.board.leaves)
    shapes: set[str] = set()
    rails = planner.ALL_RAILS
    seen = {kind for _, _, node in gang.ring if (kind := view.index(node)) is not None}
    for kind in seen:
        stands = view.board.standings[kind]
        shapes.add(stands.facts.shape)
        rails &= stands.rails_there
    return planner.Mates(leaves=near, ahead=ahead, reached=reached, shapes=shapes, rails=rails)


def decide(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> Decision:
    """One decision by a desk that remembers nothing."""
    return Desk(state, book).decide(question)
