"""Shows one fabric: its leaves, their nodes, which pods use which rails, and why rails cannot be used.

If several rails share one resource, the API server does not say which rail a pod got: the view assigns them in order.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from railwright.fabric import intent, names, resources, text, topology
from railwright.fabric.overview import overview_types
from railwright.fabric.placement.state import (
    assumed_pods,
    cluster_state,
    object_info,
    pod_usage,
)
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import membership

_NOTE = "cordoned or not ready"  # of a node that no pod is placed on
_SLICE = 100  # nodes computed between two pauses of the caller: about two milliseconds

Ranks = Mapping[str, tuple[membership.GangKey, int]]
"""Pod uid -> its gang and rank."""


class FabricView:
    """The nodes and leaves of one fabric, as the overview shows them."""

    def __init__(
        self,
        name: str,
        fabric: policies.Fabric,
        *,
        cluster: cluster_state.ClusterState,
        accelerators: Sequence[str],
        foreign_resources: Collection[str],
    ) -> None:
        """`foreign_resources`: rail resources of the other fabrics; a node with only those is not part of this one."""
        self.name, self.fabric = name, fabric
        self._cluster = cluster
        self._accelerators, self._foreign_resources = accelerators, foreign_resources
        self._levels = compiled.list_domain_keys(fabric.placement)
        self._rails = tuple(rail.name for rail in fabric.rails)
        pools = intent.group_by_resource(fabric.rails)
        self._pools = {resource: [*map(self._rails.index, own)] for resource, own in pools.items()}  # positions
        self.leaves: Mapping[str, overview_types.Leaf] = {}  # by id, those of a spine together
        self.summary = self._build_summary()

    def refresh(self, ranks: Ranks) -> Iterator[None]:
        """Build the leaves with all nodes, and the summary. Yields after each part, so that the caller can pause."""
        rows_by_leaf: dict[topology.Domain, list[overview_types.Node]] = defaultdict(list)
        for count, node in enumerate(list(self._cluster.nodes.values()), 1):
            if self._belongs_to_fabric(node):
                rows_by_leaf[self.get_leaf(node.name)].append(self._build_node(node, ranks))
            if count % _SLICE == 0:
                yield
        leaves = [
            overview_types.Leaf(
                fabric=self.name,
                name=leaf[0] if leaf else "",
                above=tuple(part for part in leaf[1:] if part),
                nodes=tuple(sorted(rows, key=lambda row: text.build_natural_key(row.name))),
            )
            for leaf, rows in rows_by_leaf.items()
        ]
        keys = ["/".join((self.name, *reversed(leaf))) for leaf in rows_by_leaf]  # the full chain of domains
        ordered = sorted(zip(keys, leaves, strict=True), key=lambda item: _build_leaf_sort_key(item[1]))
        self.leaves = dict(ordered)
        self.summary = self._build_summary()

    def get_leaf(self, node: str) -> topology.Domain:
        """Return the leaf of a node; NO_DOMAIN if it has none."""
        info = self._cluster.nodes.get(node)
        place = () if info is None else self._cluster.locate_node(info, self._levels, self._rails)
        return topology.get_domain(place)

    def _build_summary(self) -> overview_types.Fabric:
        rows = [row for leaf in self.leaves.values() for row in leaf.nodes]
        free, busy, dead = count_rails(rows)
        return overview_types.Fabric(
            name=self.name,
            transport=self.fabric.transport.value,
            rails=self._rails,
            leaves=tuple(self.leaves),
            nodes=len(rows),
            rails_free=free,
            rails_busy=busy,
            rails_dead=dead,
            gpus=sum(row.gpus for row in rows),
            gpus_used=sum(row.gpus_used for row in rows),
            leaves_free=sum(bool(leaf.name) and all(map(_is_free_node, leaf.nodes)) for leaf in self.leaves.values()),
            device_class=self.fabric.claims.device_class if self.fabric.claims is not None else "",
        )

    # --- one node -------------------------------------------------------------------------------------------

    def _belongs_to_fabric(self, node: object_info.NodeInfo) -> bool:
        """Return True if a node belongs to this fabric, even if its device plugin currently reports nothing."""
        resource_names = node.capacity.keys() | node.allocatable.keys()
        if not resource_names.isdisjoint(self._pools):
            return True
        if not resource_names.isdisjoint(self._foreign_resources):
            return False
        has_leaf = bool(self.get_leaf(node.name)) or any(node.labels.get(key) for key in self._levels)
        return has_leaf or not resource_names.isdisjoint(self._accelerators)

    def _build_node(self, node: object_info.NodeInfo, ranks: Ranks) -> overview_types.Node:
        pods = tuple(self._list_pods(node, ranks))
        used = {rail for pod in pods for rail in pod.rails}
        notes, held = _list_unavailable_rails(self.fabric, node, self._cluster, used)
        broken = [
            f"{rail}: the node's annotation {names.BROKEN_RAILS} names the rail"
            for rail in self._rails
            if rail in node.broken_rails
        ]
        free = pod_usage.compute_free(node.name, self._cluster)
        gpus = sum(node.allocatable.get(name, 0) for name in self._accelerators)
        return overview_types.Node(
            name=node.name,
            rails="".join(self._list_rail_states(node, used | held)),
            note="" if node.schedulable else _NOTE,
            pods=pods,
            gpus=gpus // resources.UNIT,
            gpus_used=(gpus - sum(free.get(name, 0) for name in self._accelerators)) // resources.UNIT,
            rail_notes=(*notes, *broken),
        )

    def _list_rail_states(self, node: object_info.NodeInfo, used: Collection[int]) -> Iterator[str]:
        broken = {row.rail for row in object_info.find_broken_rails(node, self.fabric.rails)}
        for position, rail in enumerate(self.fabric.rails):
            if rail.name in broken:
                yield overview_types.DEAD
                continue
            if not rail.resource:
                yield overview_types.UNCOUNTED
                continue
            allocatable = node.allocatable.get(rail.resource, 0) // resources.UNIT
            capacity = node.capacity.get(rail.resource, 0) // resources.UNIT
            if allocatable <= self._pools[rail.resource].index(position):
                yield overview_types.DEAD
            elif allocatable < capacity:
                yield overview_types.DEGRADED
            else:
                yield overview_types.BUSY if position in used else overview_types.FREE

    def _list_pods(self, node: object_info.NodeInfo, ranks: Ranks) -> Iterator[overview_types.Pod]:
        """Yield the pods that use rails of a node: first bound, then assumed ones."""
        bound = sorted(self._cluster.list_pods_on(node.name), key=lambda pod: pod.key)
        uids = {pod.uid for pod in bound}
        assumed = sorted(
            (
                assumed_pod
                for assumed_pod in self._cluster.assumed.list_on_node(node.name)
                if assumed_pod.uid not in uids
            ),
            key=lambda assumed_pod: assumed_pod.key,
        )
        devices_used: dict[str, int] = {}
        pods: tuple[object_info.PodInfo | assumed_pods.AssumedPod, ...] = (*bound, *assumed)
        for pod in pods:
            held = pod_usage.list_held_rails(self.fabric, self._cluster.pods.get(pod.uid), self._cluster)
            positions = {self._rails.index(row.rail) for row in held}
            rails = tuple(sorted(positions.union(self._assign_rails(pod.requests, devices_used))))
            if rails:
                gang, rank = ranks.get(pod.uid, (pod.gang, -1))
                yield overview_types.Pod(pod=pod.key, rails=rails, gang=gang, rank=rank, assumed=pod.uid not in uids)

    def _assign_rails(self, requests: resources.Amounts, devices_used: dict[str, int]) -> Iterator[int]:
        """Yield the rails of a pod's devices. `devices_used` counts the rails of each pool that earlier pods got."""
        for resource, positions in self._pools.items():
            devices = requests.get(resource, 0) // resources.UNIT
            if devices <= 0:
                continue
            rails = self.fabric.count_rails(devices, len(positions))
            first = devices_used.get(resource, 0)
            devices_used[resource] = first + rails
            yield from sorted(positions[(first + offset) % len(positions)] for offset in range(rails))


def _list_unavailable_rails(
    fabric: policies.Fabric, node: object_info.NodeInfo, cluster: cluster_state.ClusterState, used: Collection[int]
) -> tuple[tuple[str, ...], frozenset[int]]:
    """Return why rails in claims are unavailable, and the indexes of those that other pods' claims hold.

    Causes: the device is tainted, held by a claim, or missing. `used` are the rails of pods on the node.
    """
    if fabric.claims is None:
        return (), frozenset()
    notes: list[str] = []
    held: set[int] = set()
    on_node = cluster.devices.list_node_devices(node.name)
    for position, rail in enumerate(fabric.rails):
        if not rail.resource:
            continue
        capacity = node.capacity.get(rail.resource, 0) // resources.UNIT
        if not capacity:
            missing = f"no device of DeviceClass {fabric.claims.device_class} in the ResourceSlices of the node"
            notes.append(f"{rail.name}: {missing} matches the rail")
        own = [device for device, names in on_node if rail.resource in names]
        tainted = [(device.id.device, taint) for device in own if (taint := device.find_taint())]
        notes += [f"{rail.name}: device {device} has the taint {taint}" for device, taint in tainted]
        holders = [
            (device.id.device, claim)
            for device in own
            if not device.find_taint() and (claim := cluster.devices.find_holding_claim(device.id)) is not None
        ]
        if holders and len(tainted) + len(holders) >= capacity and position not in used:
            held.add(position)
            for device, claim in holders:
                pods = ", ".join(pod.key for pod in pod_usage.list_claim_pods(claim, cluster))
                holder = f"claim {claim.metadata.full_name}{f' of pod {pods}' if pods else ''}"
                notes.append(f"{rail.name}: device {device} is held by {holder}")
    return tuple(notes), frozenset(held)


def count_rails(rows: Collection[overview_types.Node]) -> tuple[int, int, int]:
    """Return the numbers of free, busy and dead rails. A degraded rail is busy if a pod uses it, else free."""
    states = "".join([row.rails for row in rows])
    dead = states.count(overview_types.DEAD)
    busy = sum(  # that pods or claims use and that are not dead
        state != overview_types.DEAD and (state == overview_types.BUSY or any(rail in pod.rails for pod in row.pods))
        for row in rows
        for rail, state in enumerate(row.rails)
    )
    return max(0, len(states) - busy - dead - states.count(overview_types.UNCOUNTED)), busy, dead


def _is_free_node(row: overview_types.Node) -> bool:
    """True if a node can be used, and no pod has its rails or GPUs."""
    has_all_rails = {overview_types.DEAD, overview_types.BUSY}.isdisjoint(row.rails)
    return not row.note and not row.pods and not row.gpus_used and has_all_rails


def _build_leaf_sort_key(leaf: overview_types.Leaf) -> tuple[bool, list[text.NaturalKey], text.NaturalKey]:
    """Return a sort key that groups leaves by spine and puts nodes without a leaf last."""
    above = [text.build_natural_key(part) for part in reversed(leaf.above)]
    return (not leaf.name, above, text.build_natural_key(leaf.name))
