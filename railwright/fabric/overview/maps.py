"""One fabric as it stands in the racks: its leaves, their nodes, and who has which rail.

Owns the rows of nodes, kept current by the journals of the fleet and the ledger: of a thousand nodes only those that
something happened to are looked at again. Where a pool serves several rails nobody can know which of them a pod got:
they are given out in order, as a picture needs some order.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from railwright.fabric import resources, topology, workload
from railwright.fabric.overview import model, order
from railwright.fabric.placement import fleet, ledger, places
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import presets

SLICE = 100  # nodes looked at between two pauses of the caller: about two milliseconds

Numbers = Mapping[str, tuple[workload.GangKey, int]]
"""Pod uid -> its gang and rank."""


class Map:
    """One fabric's nodes."""

    def __init__(  # noqa: PLR0913 - the independent parts, by name
        self,
        name: str,
        fabric: policies.Fabric,
        *,
        state: fleet.Fleet,
        book: ledger.Ledger,
        accelerators: Sequence[str],
        others: Collection[str],
    ) -> None:
        """`others` are the rails' resources of the other fabrics: a node with one of those only is not of this one."""
        self.name, self.fabric = name, fabric
        self._state, self._book = state, book
        self._accelerators, self._others = accelerators, others
        self._levels = presets.domains(fabric.placement)
        self._rails = tuple(rail.name for rail in fabric.rails)
        self._places = places.Places(state, self._levels, self._rails)
        self._pools = _pools(fabric.rails)
        self._rows: dict[str, model.Node] = {}
        self._at: dict[str, topology.Domain] = {}
        self._on: dict[topology.Domain, set[str]] = defaultdict(set)
        self.leaves: dict[str, model.Leaf] = {}  # by id
        self.shown = self._whole()

    def refresh(self, touched: Collection[str] | None, numbers: Numbers) -> Iterator[None]:
        """Look again at these nodes, at all where None; yields now and then."""
        self._places.refresh()
        changed: set[topology.Domain] = set()
        nodes = {**self._rows, **self._state.nodes} if touched is None else touched
        for count, name in enumerate(nodes, 1):
            changed |= self._look(name, numbers)
            if count % SLICE == 0:
                yield
        for leaf in changed:
            self._draw(leaf)
        if changed:
            self.shown = self._whole()

    def _look(self, name: str, numbers: Numbers) -> set[topology.Domain]:
        """The leaves that a node's new row changes."""
        node = self._state.nodes.get(name)
        old, was = self._rows.get(name), self._at.get(name)
        if node is None or not self._is_part(node):
            row, leaf = None, None
        else:
            row, leaf = self._row(node, numbers), self._places.leaves.get(name, topology.NOWHERE)
        if row == old and leaf == was:
            return set()
        if was is not None:
            self._on[was].discard(name)
            del self._rows[name], self._at[name]
        if row is not None and leaf is not None:
            self._rows[name], self._at[name] = row, leaf
            self._on[leaf].add(name)
        return {each for each in (was, leaf) if each is not None}

    def _draw(self, leaf: topology.Domain) -> None:
        key = self.id_of(leaf)
        if not self._on[leaf]:
            del self._on[leaf]
            self.leaves.pop(key, None)
            return
        self.leaves[key] = model.Leaf(
            fabric=self.name,
            name=leaf[0] if leaf else "",
            above=tuple(part for part in leaf[1:] if part),
            nodes=tuple(self._rows[name] for name in sorted(self._on[leaf], key=order.natural)),
        )

    def id_of(self, leaf: topology.Domain) -> str:
        """What a leaf is known by: the fabric and its whole chain of domains."""
        return "/".join((self.name, *reversed(leaf)))

    def leaf_of(self, node: str) -> topology.Domain:
        """Where a node is; NOWHERE where it has no leaf."""
        return self._at.get(node, topology.NOWHERE)

    def _whole(self) -> model.Fabric:
        letters = "".join([row.rails for row in self._rows.values()])
        dead = letters.count(model.DEAD)
        held = sum(_held(row) for row in self._rows.values())
        return model.Fabric(
            name=self.name,
            transport=self.fabric.transport.value,
            rails=self._rails,
            levels=self._levels,
            leaves=tuple(sorted(self.leaves, key=lambda key: _position(self.leaves[key]))),
            nodes=len(self._rows),
            rails_free=max(0, len(letters) - held - dead - letters.count(model.UNCOUNTED)),
            rails_busy=held,
            rails_dead=dead,
        )

    # --- one node -------------------------------------------------------------------------------------------

    def _is_part(self, node: fleet.FleetNode) -> bool:
        """Whether a node belongs to this fabric, also one whose device plugin is away."""
        has = node.capacity.keys() | node.allocatable.keys()
        if not has.isdisjoint(self._pools):
            return True
        if not has.isdisjoint(self._others):
            return False
        located = bool(self._places.leaves.get(node.name)) or any(node.labels.get(key) for key in self._levels)
        return located or not has.isdisjoint(self._accelerators)

    def _row(self, node: fleet.FleetNode, numbers: Numbers) -> model.Node:
        pods = tuple(self._pods(node, numbers))
        held = {rail for pod in pods for rail in pod.rails}
        return model.Node(
            name=node.name,
            rails="".join(self._letters(node, held)),
            note="" if node.schedulable else "cordoned or not ready",
            pods=pods,
        )

    def _letters(self, node: fleet.FleetNode, held: Collection[int]) -> Iterator[str]:
        for at, rail in enumerate(self.fabric.rails):
            if not rail.resource:
                yield model.UNCOUNTED
                continue
            allocatable = node.allocatable.get(rail.resource, 0) // resources.UNIT
            capacity = node.capacity.get(rail.resource, 0) // resources.UNIT
            if allocatable <= self._pools[rail.resource].index(at):
                yield model.DEAD
            elif allocatable < capacity:
                yield model.DEGRADED
            else:
                yield model.BUSY if at in held else model.FREE

    def _pods(self, node: fleet.FleetNode, numbers: Numbers) -> Iterator[model.Pod]:
        """The pods with rails of a node: bound, then announced."""
        bound = sorted(self._state.on_node(node.name), key=lambda pod: pod.key)
        uids = {pod.uid for pod in bound}
        coming = [entry for entry in self._book.on_node(node.name) if entry.uid not in uids]
        given: dict[str, int] = {}
        everybody: tuple[fleet.FleetPod | ledger.Entry, ...] = (*bound, *sorted(coming, key=lambda entry: entry.key))
        for each in everybody:
            rails = tuple(self._taken(each.requests, given))
            if rails:
                gang, rank = numbers.get(each.uid, (each.gang, -1))
                yield model.Pod(pod=each.key, rails=rails, gang=gang, rank=rank, announced=each.uid not in uids)

    def _taken(self, requests: resources.Amounts, given: dict[str, int]) -> Iterator[int]:
        """The rails that a pod's devices are on; `given` counts what earlier pods got of each pool."""
        for resource, positions in self._pools.items():
            devices = requests.get(resource, 0) // resources.UNIT
            if devices <= 0:
                continue
            rails = min(len(positions), -(-devices // max(1, self.fabric.devices_per_rail)))
            first = given.get(resource, 0)
            given[resource] = first + rails
            yield from sorted(positions[(first + each) % len(positions)] for each in range(rails))


def _held(row: model.Node) -> int:
    """Live rails of a node that pods have."""
    return sum(row.rails[rail] != model.DEAD for rail in {rail for pod in row.pods for rail in pod.rails})


def _pools(rails: Sequence[policies.Rail]) -> Mapping[str, Sequence[int]]:
    """Resource -> the positions of the rails that draw on it."""
    pools: dict[str, list[int]] = {}
    for at, rail in enumerate(rails):
        if rail.resource:
            pools.setdefault(rail.resource, []).append(at)
    return pools


def _position(leaf: model.Leaf) -> tuple[bool, list[order.Key], order.Key]:
    """Leaves below one spine stand together; nodes without a leaf come last."""
    above = [order.natural(part) for part in reversed(leaf.above)]
    return (not leaf.name, above, order.natural(leaf.name))
