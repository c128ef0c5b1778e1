"""Shows the node index to one request, with overrides for offers, nodes of peers, and the pod's own old node.

Also builds the capacity that a gang is planned on.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from railwright.fabric import resources, topology
from railwright.fabric.placement import ask, board, crew, fleet, ledger, planner, standing, verdicts

FULL_OFFER = 100  # up to this many, both schedulers offer all feasible nodes; above, a sample (minFeasibleNodesToFind)


class Outlook:
    """The node index with the overrides of one request."""

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
        self.exceptions = exceptions  # node -> index of its class for this request

    def index(self, node: str) -> int | None:
        """Return the index of a node's class, or None if the cache does not contain the node."""
        found = self.exceptions.get(node)
        return found if found is not None else self.board.kinds.get(node)

    def stands(self, node: str) -> standing.Standing | None:
        """Return a node's evaluation, or None if the cache does not contain the node."""
        found = self.index(node)
        return None if found is None else self.board.standings[found]

    def leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NOWHERE if it has none."""
        return self.board.leaves.get(node, topology.NOWHERE)

    def row(self, node: str, score: float) -> verdicts.Row:
        """Build the row of a node for explanations."""
        stands = self.stands(node)
        return verdicts.Row(node, score, stands, self.leaf(node), self.holders(node) if _lacks_rail(stands) else ())

    def refused_row(self, node: str) -> verdicts.Row:
        """Build the row of an infeasible node, with the pods that use it."""
        return verdicts.Row(node, 0.0, self.stands(node), self.leaf(node), self.holders(node))

    def rows(self, names: Iterable[str], most: int, scores: Mapping[str, float]) -> list[verdicts.Row]:
        """Build rows for up to `most` of these nodes, and for up to `most` infeasible ones."""
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
        lacking: dict[int | None, bool] = {}  # cached by class: the nodes of a leaf belong to few classes
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
        """Return the leaves that contain at least one offered node."""
        leaves = self.board.leaves
        return {leaves[name] for name in self.question.nodes if name in leaves}

    def kinds(self) -> Mapping[str, int]:
        """Map nodes to the index of their class, with the overrides of this request."""
        if not self.exceptions:
            return self.board.kinds
        return {name: kind for name in self.question.nodes if (kind := self.index(name)) is not None}

    def unknown(self) -> int:
        """Return the number of candidate nodes that the cache does not contain."""
        nodes = self.question.nodes
        return len(nodes) - len(self.board.kinds.keys() & nodes) if nodes else 0


def _lacks_rail(stands: standing.Standing | None) -> bool:
    return stands is not None and any(not rail.sufficient for rail in stands.rails)


def exceptions(
    question: ask.Ask, current: board.Board, gang: crew.Crew, state: fleet.Fleet, book: ledger.Ledger
) -> Mapping[str, int]:
    """Return the nodes that have another class for this request than in the index, with the index of that class."""
    found: dict[str, int] = {}
    owned: dict[str, list[resources.Amounts]] = {}
    for _, uid, node in gang.placed:
        # peers on a node share its NICs; a node without free slots needs no override
        if (kind := current.kinds.get(node)) is not None and current.standings[kind].grade.alignments:
            pod = state.pods.get(uid)
            entry = book.entry(uid)
            owned.setdefault(node, []).append(pod.requests if pod else entry.requests if entry else {})
    home = {entry.node for uid in gang.asked if (entry := book.entry(uid))}
    home |= {pod.node for pod in (state.pods.get(question.uid),) if pod and pod.node}
    made: dict[tuple[int, int], int] = {}  # equal offers are one object, so the identity of an offer is a cache key
    for name, offer in question.offers.items():
        kind = current.kinds.get(name)
        if kind is None:
            continue
        if name in owned or name in home:
            free = _offered(current, offer)
            facts = current.facts(state.nodes[name], free, owned.get(name, ()), mine=question.uid, void=gang.asked)
            facts = current.with_free(facts, free, emptied=offer.emptied, elsewhere=offer.elsewhere)
            found[name] = current.index(facts)
            continue
        pair = (kind, id(offer))
        if (index := made.get(pair)) is None:
            index = made[pair] = _as_offered(current, kind, offer)
        if index != kind:
            found[name] = index
    for name in home - found.keys():
        if name in state.nodes:
            free = current.free_of(name, mine=question.uid, void=gang.asked)
            facts = current.facts(state.nodes[name], free, owned.get(name, ()), mine=question.uid, void=gang.asked)
            found[name] = current.index(facts)
    found |= _shared_with_mates(current, {name: held for name, held in owned.items() if name not in found})
    return found


def _shared_with_mates(current: board.Board, owned: Mapping[str, Sequence[resources.Amounts]]) -> Mapping[str, int]:
    """Return the classes of nodes that peers use, cached by usage: a large gang has thousands of such nodes."""
    made: dict[tuple[int, tuple[int, ...]], int] = {}
    found = {}
    for name, held in owned.items():
        pair = current.kinds[name], current.own(held)
        if pair not in made:
            made[pair] = current.index(current.standings[pair[0]].facts._replace(own=pair[1]))
        found[name] = made[pair]
    return found


def _as_offered(current: board.Board, kind: int, offer: ask.Offer) -> int:
    """Return the class of a node with the free resources that the scheduler offers; usually the same class."""
    facts = current.standings[kind].facts
    said = current.with_free(facts, _offered(current, offer), emptied=offer.emptied, elsewhere=offer.elsewhere)
    return kind if said == facts else current.index(said)


def _offered(current: board.Board, offer: ask.Offer) -> resources.Amounts:
    """Return the idle resources of an offer, or if these are too few, those after terminating pods have left."""
    if offer.promised is None or all(offer.free.get(name, 0) >= amount for name, amount in current.wanted):
        return offer.free
    return offer.promised


def supply(question: ask.Ask, view: Outlook) -> planner.Supply:
    """Return the capacity that the gang is planned on.

    Below 100 nodes (FULL_OFFER) the scheduler offers every feasible node. Above that it offers a sample, so capacity
    also counts eligible nodes that were not offered. If the scheduler announces no allocations (kube-scheduler), nodes
    of the offered leaves that were not offered count too: a peer whose binding has not been observed may be there, and
    until then it counts as unplaced (docs/interface.md 7.7).
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
        return supplied(view, leaves)
    else:
        leaves = {leaf: current.supply[leaf] for leaf in view.offered_leaves()}
    for name, kind in view.exceptions.items():
        leaf = current.leaves.get(name, topology.NOWHERE)
        old = current.kinds.get(name)
        if leaf in leaves and old is not None and old != kind:
            counts = leaves[leaf] = dict(leaves[leaf])
            counts[old] -= 1
            counts[kind] = counts.get(kind, 0) + 1
    return supplied(view, leaves)


def supplied(view: Outlook, leaves: Mapping[topology.Domain, Mapping[int, int]]) -> planner.Supply:
    """Build the capacity of these nodes: leaf -> index of class -> number of nodes."""
    return planner.Supply(
        grades=[stands.grade for stands in view.board.standings],
        leaves=leaves,
        sizes=view.board.sizes,
        oversubscription=view.question.fabric.placement.oversubscription,
        links=view.board.profile.links,
    )
