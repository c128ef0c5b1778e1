"""Filters and scores nodes for one pod, the same way for both schedulers.

The result depends only on the request, the cluster state and the assumed pods; `Desk` only caches. The wire modules of
the extender translate it into the scales and status codes of Volcano and kube-scheduler.
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

ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones


class Decision:
    """The scores of all candidate nodes of one pod. Explanations are formatted on demand."""

    def __init__(
        self,
        view: outlook.Outlook,
        planning: outlook.Outlook,
        scores: dict[str, float],
        wording: verdicts.Wording,
        size: int,
    ) -> None:
        self.scores = scores  # node -> 0..100; 0 for infeasible nodes and for nodes that the cache does not contain
        self.wording = wording
        self.gang_size = size
        self._view = view
        self._planning = planning  # the view for the pod size that the plan is based on

    @property
    def plan(self) -> planner.Plan:
        """Return the leaves for the unplaced pods of the gang."""
        return self.wording.plan

    @property
    def gang(self) -> locality.GangStanding:
        """Return the summary of the gang that locality scores use."""
        return self.wording.gang

    @property
    def unknown(self) -> int:
        """Return the number of candidate nodes that the cache does not contain."""
        return self._view.unknown()

    def reasons(self) -> account.Account:
        """Explain why the plan is no better. Call it right after the decision, before the node index changes."""
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
        """Return up to `most` feasible and `most` infeasible nodes: target leaf first, planned leaves, then others."""
        return self._view.rows(self._worth_showing(), most, self.scores)

    def row(self, node: str) -> verdicts.Row:
        """Return one candidate node."""
        return self._view.row(node, self.scores.get(node, 0.0))

    def _worth_showing(self) -> Iterable[str]:
        leaves = self._view.board.nodes
        for leaf in (self.gang.due, *self.gang.plan):
            if leaf is not None:
                yield from leaves.get(leaf, ())
        yield from self.scores

    @property
    def verdicts(self) -> Mapping[str, verdicts.Verdict]:
        """Return the explanation of each candidate node, by name."""
        return {name: self.wording.verdict(self._view.row(name, score)) for name, score in self.scores.items()}


class Screening(msgspec.Struct, frozen=True):
    """The result of filtering: the feasible nodes, and a message for each other node."""

    kept: Sequence[str]  # feasible
    busy: Mapping[str, str]  # unschedulable now: node -> message
    never: Mapping[str, str]  # unschedulable even if other pods leave: node -> message
    unknown: int  # nodes that the cache does not contain; they are feasible
    rows: Sequence[verdicts.Row]  # a few of the infeasible nodes


class Desk:
    """The placement engine of one cluster. Caches node indexes, gang plans and soft reservations between requests."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._state = state
        self._book = book
        self._boards = board.Boards(state, book)
        self._claims = claims.Claims(state, book)
        self._standing_plans = plans.Plans(state, book)

    def warm(self, document: model.FabricPolicy) -> None:
        """Compute the domains and free resources of all nodes in advance, for each fabric; about a millisecond."""
        for fabric in document.fabrics.values():
            if fabric.rails:
                self._boards.warm(presets.domains(fabric.placement), tuple(rail.name for rail in fabric.rails))

    def decide(self, question: ask.Ask) -> Decision:
        """Score every candidate node."""
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
        """Drop the soft reservation of a gang whose scheduler rolled back its allocations."""
        self._claims.drop(gang)

    def towards(self, question: ask.Ask) -> board.Board:
        """Return the current node index for pods like the requesting one."""
        alone = crew.is_alone(question, self._state)
        return self._boards.of(profile.of(question, question.requests, alone=alone))

    def screen(self, question: ask.Ask) -> Screening:
        """Filter the candidate nodes without planning the gang."""
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
        fits = [*(not refusal for refusal in told), True]  # the last item is for index -1, a node not in the cache
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
            # the scheduler offered a sample without this rank's target leaf: plan on the offered leaves only
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
    """Summarize the placed peers for the planner."""
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
    """Score every candidate node with empty caches."""
    return Desk(state, book).decide(question)
