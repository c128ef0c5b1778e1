"""Caches the evaluations of all nodes for one scheduling signature, updated from the change logs.

Nodes with equal facts share one evaluation (a node class), and only changed nodes are evaluated again. A decision over
5,000 nodes therefore costs as much as one over a few nodes. The cache can be dropped at any time.
"""

import operator
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import ModuleType

from railwright.fabric import resources, topology
from railwright.fabric.placement import eligibility, fleet, kubelet, ledger, numa, places, profile, standing
from railwright.fabric.placement.terms import completion, locality, packing
from railwright.fabric.placement.terms import numa as numa_term
from railwright.fabric.placement.terms import rails as rails_term
from railwright.fabric.policy import model, selectors

BOARDS = 16  # cached signatures, about 2 MB each at 5,000 nodes; a cluster runs few kinds of large jobs at a time
_NODE_TERMS: tuple[ModuleType, ...] = (rails_term, numa_term, packing)


class Board:
    """The evaluations of all nodes for one scheduling signature."""

    def __init__(self, kind: profile.Profile, state: fleet.Fleet, book: ledger.Ledger, where: places.Places) -> None:
        self.profile = kind
        self._places = where
        self._state = state
        self._book = book
        self._seen: tuple[int, int] = (-1, -1)
        self._undivided = [
            (name, amount) for name, amount in kind.requests.items() if amount > 0 and name not in kind.devices
        ]
        wanted = {need.resource: need.amount for need in kind.needs}
        wanted |= {name: kind.requests[name] for name in kind.devices if name in kind.requests}
        self.wanted = tuple(wanted.items())  # (accelerator or pool, milli-units)
        self._nothing = (0,) * len(kind.devices)
        self._unasked = {need.resource: need.amount for need in kind.needs if not kind.requests.get(need.resource)}
        self._ignores_numa = kind.fabric.placement.numa == "ignore"
        self.terms = [term for term in _NODE_TERMS if not (self._ignores_numa and term.NAME == numa_term.NAME)]
        self._weights = {term.NAME: _weight(kind, term.NAME) for term in self.terms}
        self._locality = _weight(kind, locality.NAME) if kind.domains else 0.0
        self._total = self._locality + sum(self._weights.values())
        self._by_facts: dict[standing.Facts, int] = {}
        self._amounts: dict[int, tuple[resources.Amounts, tuple[int, ...], int]] = {}
        self._clear()

    def _clear(self) -> None:
        self.standings: list[standing.Standing] = []
        self.orders: list[completion.Order] = []  # by class: fill order for a single-pod job; () for other jobs
        self.base: list[float] = []  # by class: score without locality, 0..100
        self._by_facts.clear()
        self.kinds: dict[str, int] = {}  # node -> index of its class
        self.leaves: dict[str, topology.Domain] = {}  # node -> its leaf
        self.supply: dict[topology.Domain, dict[int, int]] = {}  # leaf -> index of class -> number of nodes
        self.points_of: dict[str, float] = {}  # node -> score without locality

    def refresh(self) -> None:
        """Evaluate the nodes that changed since the last call."""
        self._places.refresh()
        journals = (self._state.journal, self._book.journal)
        changes = [journal.since(position) for journal, position in zip(journals, self._seen, strict=True)]
        self._seen = (journals[0].position, journals[1].position)
        if None in changes or len(self.standings) > _MOST_STANDINGS:
            self._clear()
            changes = [self._state.nodes]
        for name in {name: None for names in changes if names is not None for name in names}:
            self._place(name)

    def facts(
        self,
        node: fleet.FleetNode,
        free: resources.Amounts,
        own: Sequence[resources.Amounts] = (),
        *,
        mine: str = "",
        void: Collection[str] = (),
    ) -> standing.Facts:
        """Build NodeFacts for `node` given `free`; `own` is what gang peers already use on it.

        `mine` is the UID of the requesting pod, whose own old allocation never counts against it (docs/interface.md
        7.7). `void` are the UIDs of assumptions to ignore.
        """
        kind = self.profile
        shape = selectors.first_shape(kind.shapes, node.labels) if kind.shapes else None
        announced = [entry.requests for entry in self._announced(node.name, void) if self._is_volcanos(entry)]
        zones, whole, told = ((), (), ("", False)) if self._ignores_numa else self._zones(node, shape, mine, void)
        return standing.Facts(
            eligible=eligibility.is_eligible(node, kind.spec),
            shape=shape.name if shape else node.labels.get(_PRODUCT, ""),
            others=self.others(free),
            free=self._counts(free),
            allocatable=self._counts(node.allocatable),
            capacity=self._counts(node.capacity),
            own=self.own(own) if own else self._nothing,
            zones=zones,
            whole=whole,
            kubelet=told[0],
            hopeless=told[1],
            elsewhere=self._sum(announced) if announced else (),
        )

    def own(self, held: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Return the devices that peers use, including rails that they use without requesting them."""
        if not self._unasked:
            return self._sum(held)
        accelerated = sum(1 for each in held if any(each.get(name, 0) > 0 for name in self.profile.accelerators))
        return tuple(
            sum(each.get(name, 0) for each in held) or accelerated * self._unasked.get(name, 0)
            for name in self.profile.devices
        )

    def _sum(self, amounts: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Add up the amounts of the signature's devices, in its order."""
        return tuple([sum([each.get(name, 0) for each in amounts]) for name in self.profile.devices])

    def with_free(
        self,
        facts: standing.Facts,
        free: resources.Amounts,
        *,
        emptied: bool = False,
        elsewhere: resources.Amounts | None = None,
    ) -> standing.Facts:
        """Return the facts with other free resources. With `emptied`, all NUMA nodes count as free (preemption).

        `elsewhere` is what assumed pods of other schedulers take in addition; None keeps the present value.
        """
        _, devices, others = self._counted(free)
        if emptied:
            facts = facts._replace(zones=facts.whole)
        unreported = self.profile.fabric.placement.numa != "required" and any(map(operator.gt, devices, facts.free))
        if facts.kubelet and not facts.hopeless and (emptied or unreported):
            facts = facts._replace(kubelet="")
        if elsewhere is not None:
            facts = facts._replace(elsewhere=self._sum([elsewhere]) if elsewhere else ())
        return facts._replace(free=devices, others=others, eligible=True)

    def _counts(self, given: resources.Amounts) -> tuple[int, ...]:
        """Return the amounts of the signature's devices, in its order."""
        return self._counted(given)[1]

    def others(self, free: resources.Amounts) -> int:
        """Return the number of pods that fit by CPU, memory and other resources that are not devices."""
        return self._counted(free)[2]

    def _counted(self, given: resources.Amounts) -> tuple[resources.Amounts, tuple[int, ...], int]:
        """Return (amounts, device amounts, pods that fit by other resources), cached by the identity of `given`.

        Equal nodes share one amounts object.
        """
        found = self._amounts.get(id(given))
        if found is None or found[0] is not given:
            least = standing.MOST_MEMBERS
            for name, amount in self._undivided:
                least = min(given.get(name, 0) // amount, least)
            devices = tuple([given.get(name, 0) for name in self.profile.devices])
            found = self._amounts[id(given)] = (given, devices, max(0, least))
            if len(self._amounts) > _MOST_AMOUNTS:
                self._amounts = {id(given): found}
        return found

    def index(self, facts: standing.Facts) -> int:
        """Return the index of the class of nodes with these facts; add the class if it is new."""
        found = self._by_facts.get(facts)
        if found is None:
            found = self._by_facts[facts] = len(self.standings)
            stands = standing.of(self.profile, facts)
            self.standings.append(stands)
            self.orders.append(completion.order(stands) if self.profile.alone else ())
            self.base.append(self._base(stands))
        return found

    def free_of(self, name: str, *, mine: str = "", void: Collection[str] = ()) -> resources.Amounts:
        """Return allocatable minus bound minus assumed; the pods `mine` and `void` count as absent (see `facts`)."""
        free = self._state.free(name)
        taken = [entry.requests for entry in self._announced(name, void)]
        own = self._state.pods.get(mine) if mine else None
        returned = own.requests if own is not None and own.node == name else {}
        if not taken and not returned:
            return free
        result = dict(free)
        for amounts in taken:
            for resource, amount in amounts.items():
                result[resource] = result.get(resource, 0) - amount
        for resource, amount in returned.items():
            result[resource] = result.get(resource, 0) + amount
        return result

    def _is_volcanos(self, entry: ledger.Entry) -> bool:
        """True if a Volcano instance announced the pod. kube-scheduler does not know of it."""
        return self._book.scope_of(entry.uid) != ledger.KUBE_SCOPE

    def _announced(self, name: str, void: Collection[str]) -> list[ledger.Entry]:
        """Return the pods assumed on a node whose binding has not been observed."""
        pods = self._state.pods
        return [
            entry
            for entry in self._book.on_node(name)
            if entry.uid not in void and not ((bound := pods.get(entry.uid)) and bound.node)
        ]

    def points(self, value: float) -> float:
        """Return the score, 0..100, that a locality value of 0..1 adds to a node's base score."""
        return 100.0 * self._locality * value / self._total if self._total > 0 else 0.0

    def _base(self, stands: standing.Standing) -> float:
        if stands.refusal or self._total <= 0:
            return 0.0
        if self.profile.alone:
            rails = self._weights[rails_term.NAME] * rails_term.value(stands)[0]
            return 100.0 * (rails + completion.worth(stands, self._weights)) / self._total
        return 100.0 * sum(self._weights[term.NAME] * float(term.value(stands)[0]) for term in self.terms) / self._total

    # --- keeping current ------------------------------------------------------------------------------

    def _place(self, name: str) -> None:
        """Update the class of a node."""
        node = self._state.nodes.get(name)
        if node is None:
            self._take_out(name)
            return
        leaf = self._places.leaves[name]
        kind = self.index(self.facts(node, self.free_of(name)))
        old = self.kinds.get(name)
        if old is not None and self.leaves[name] == leaf:
            if old != kind:
                self._move(self.supply[leaf], old, kind)
        else:
            self._take_out(name)
            counts = self.supply.setdefault(leaf, {})
            counts[kind] = counts.get(kind, 0) + 1
            self.leaves[name] = leaf
        self.kinds[name] = kind
        self.points_of[name] = self.base[kind]

    def _take_out(self, name: str) -> None:
        old = self.kinds.pop(name, None)
        if old is None:
            return
        leaf = self.leaves.pop(name)
        self._move(self.supply[leaf], old, None)
        if not self.supply[leaf]:
            del self.supply[leaf]
        del self.points_of[name]

    @staticmethod
    def _move(counts: dict[int, int], old: int, new: int | None) -> None:
        counts[old] -= 1
        if not counts[old]:
            del counts[old]
        if new is not None:
            counts[new] = counts.get(new, 0) + 1

    @property
    def nodes(self) -> Mapping[topology.Domain, Mapping[str, None]]:
        """Return the nodes of each leaf."""
        return self._places.nodes

    @property
    def sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        return self._places.sizes

    def _zones(
        self, node: fleet.FleetNode, shape: model.NodeShape | None, mine: str, void: Collection[str]
    ) -> tuple[numa.Zones, numa.Zones, tuple[str, bool]]:
        """Return (free zones, allocatable zones, (kubelet's admission error or "", True if the error is permanent)).

        With `numa: required` the admission check uses the best estimate of what is free on each NUMA node. Otherwise it
        uses only what kubelet reported, so that no pod waits because of an estimate.
        """
        kind, found = self.profile, self._state.reported(node.name)
        if shape is None and found is None:
            return (), (), ("", False)
        rails, accelerators = kind.fabric.rails, kind.accelerators
        announced = [entry.requests for entry in self._announced(node.name, void)]
        zones = self._state.zones(node, shape, rails, accelerators, announced, without=mine)
        whole: numa.Zones = ()
        if shape is not None:
            whole = self._state.shaped(node, shape, rails, accelerators)
        elif found is not None:
            whole = numa.whole(found, {*accelerators, *(rail.resource for rail in rails if rail.resource)})
        if found is None or not kind.containers or not kubelet.is_strict(found):
            return zones, whole, ("", False)
        if kind.fabric.placement.numa == "required":
            refused = kubelet.rejected(found, zones, kind.requested, kind.containers)
            never = bool(refused) and bool(kubelet.rejected(found, whole, kind.requested, kind.containers))
            return zones, whole, (refused, never)
        names = {*accelerators, *(rail.resource for rail in rails if rail.resource)}
        if refused := kubelet.rejected(found, numa.whole(found, names), kind.requested, kind.containers):
            return zones, whole, (refused, True)
        if mine or announced or not self._state.is_reported_exactly(node.name, names):
            return zones, whole, ("", False)
        return zones, whole, (kubelet.rejected(found, zones, kind.requested, kind.containers), False)


def _weight(kind: profile.Profile, term: str) -> float:
    return float(getattr(kind.fabric.placement.weights, term))


_MOST_AMOUNTS = 8192  # cached amounts of nodes; the cache is cleared above that
_MOST_STANDINGS = 20_000  # node classes; the index is rebuilt above that
_PRODUCT = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where the policy does not


class Boards:
    """The node indexes of the most recently used signatures."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._state = state
        self._book = book
        self._kept: OrderedDict[Hashable, Board] = OrderedDict()
        self._places: OrderedDict[Hashable, places.Places] = OrderedDict()

    def of(self, kind: profile.Profile) -> Board:
        """Return the node index of a signature, updated."""
        found = self._kept.get(kind.key)
        if found is None:
            where = self._where(kind.domains, tuple(rail.name for rail in kind.fabric.rails))
            found = self._kept[kind.key] = Board(kind, self._state, self._book, where)
            if len(self._kept) > BOARDS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(kind.key)
        found.refresh()
        return found

    def warm(self, domains: tuple[str, ...], rails: tuple[str, ...]) -> None:
        """Compute in advance what all signatures of a fabric share: the leaf and the free resources of each node."""
        self._where(domains, rails).refresh()
        for name in self._state.nodes:
            self._state.free(name)

    def _where(self, domains: tuple[str, ...], rails: tuple[str, ...]) -> places.Places:
        key = (domains, rails)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = places.Places(self._state, domains, rails)
            if len(self._places) > BOARDS:
                self._places.popitem(last=False)
        return found
