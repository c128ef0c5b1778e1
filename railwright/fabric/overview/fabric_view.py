"""Shows one fabric: its leaves, their nodes, and which pods use which rails; and why nodes cannot be used.

Owns the rows of nodes. It follows the change logs of the cluster state and of assumed pods, so that only changed nodes
are computed again. If several rails share one resource, the API server does not say which rail a pod got: the view
assigns them in order.

Why nodes cannot be used (cordons, conditions and taints, with the times that Kubernetes records) is in a sink of nodes
beside the cluster state, which only knows whether a node is schedulable. Nodes without a note are not stored.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import intent, names, node_views, resources, text, topology
from railwright.fabric.claims import objects
from railwright.fabric.overview import overview_types
from railwright.fabric.placement.state import (
    assumed_pods,
    broken_rails,
    cluster_state,
    object_info,
    pod_usage,
)
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import presets
from railwright.fabric.workloads import membership

UNSPECIFIED = "cordoned or not ready"  # for readers without this sink
_MAX_TEXT = 300  # characters of a condition's message or an annotation
_CORDON_TAINT = "node.kubernetes.io/unschedulable"
_KUBERNETES_TAINTS = "node.kubernetes.io/"  # repeat what spec.unschedulable and the conditions say


class NodeNote(msgspec.Struct, frozen=True):
    """Why a node cannot be used."""

    text: str
    at: str = ""  # RFC 3339: since when; "" if unknown
    taints: tuple[str, ...] = ()  # KEY=VALUE:EFFECT


class NodeNotes:
    """Notes by node. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self._notes: dict[str, NodeNote] = {}
        self._changed: dict[str, None] = {}

    def find(self, node: str) -> NodeNote | None:
        """Return the note of a node; None if the node can be used."""
        return self._notes.get(node)

    def take_changed(self) -> Sequence[str]:
        """Return the nodes with a new note, an old one or another one since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def replace(self, objects: Sequence[node_views.Node]) -> None:
        """Apply the full list of nodes."""
        for name in self._notes.keys() - {node.metadata.name for node in objects}:
            self._store(name, None)
        for node in objects:
            self.upsert(node)

    def upsert(self, obj: node_views.Node) -> None:
        """Apply a new or changed node."""
        self._store(obj.metadata.name, describe(obj))

    def remove(self, obj: node_views.Node) -> None:
        """Forget a node."""
        self._store(obj.metadata.name, None)

    def _store(self, name: str, note: NodeNote | None) -> None:
        if note == self._notes.get(name):
            return
        self._changed[name] = None
        if note is None:
            del self._notes[name]
        else:
            self._notes[name] = note


def describe(node: node_views.Node) -> NodeNote | None:
    """Return the note of a node; None if it is schedulable and Ready."""
    taints = node.spec.taints or ()
    not_ready = [
        condition
        for condition in node.status.conditions or ()
        if condition.type == "Ready" and condition.status != "True"
    ]
    parts, times = [], []
    if node.spec.unschedulable:
        parts.append("; ".join(["cordoned", *_list_cordon_reasons(node)]))
        times += [taint.time_added for taint in taints if taint.key == _CORDON_TAINT]
    for condition in not_ready:
        detail = ": ".join(filter(None, (condition.reason, text.truncate(condition.message, _MAX_TEXT))))
        parts.append(f"not ready{detail and f' ({detail})'}")
        times.append(condition.last_transition_time)
    if not parts:
        return None
    own_taints = (taint for taint in taints if not taint.key.startswith(_KUBERNETES_TAINTS))
    return NodeNote(
        text=", ".join(parts),
        at=min(filter(None, times), default=""),
        taints=tuple(f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}" for taint in own_taints),
    )


def _list_cordon_reasons(node: node_views.Node) -> Iterator[str]:
    """Yield annotations about the cordon. Kubernetes has no field for it; repair controllers write annotations."""
    for key, value in sorted(node.metadata.annotations.items()):
        if "cordon" in key.lower() and value:
            yield f"{key}: {text.truncate(value, _MAX_TEXT)}"


# --- a fabric -----------------------------------------------------------------------------------------------


SLICE = 100  # nodes computed between two pauses of the caller: about two milliseconds

Ranks = Mapping[str, tuple[membership.GangKey, int]]
"""Pod uid -> its gang and rank."""


class FabricView:
    """The nodes of one fabric."""

    def __init__(  # noqa: PLR0913 - independent parts, given by name
        self,
        name: str,
        fabric: policies.Fabric,
        *,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
        accelerators: Sequence[str],
        foreign_resources: Collection[str],
        notes: NodeNotes | None = None,
    ) -> None:
        """`foreign_resources`: rail resources of the other fabrics; a node with only those is not part of this one."""
        self.name, self.fabric = name, fabric
        self._cluster, self._assumed = cluster, assumed
        self._accelerators, self._foreign_resources, self._notes = accelerators, foreign_resources, notes
        self._levels = presets.list_domain_keys(fabric.placement)
        self._rails = tuple(rail.name for rail in fabric.rails)
        self._domains = cluster_state.DomainIndex(cluster, self._levels, self._rails)
        pools = intent.group_by_resource(fabric.rails)
        self._pools = {resource: [*map(self._rails.index, own)] for resource, own in pools.items()}  # positions
        self._rows: dict[str, overview_types.Node] = {}
        self._leaf_by_node: dict[str, topology.Domain] = {}
        self._nodes_by_leaf: dict[topology.Domain, set[str]] = defaultdict(set)
        self.leaves: dict[str, overview_types.Leaf] = {}  # by id
        self.summary = self._summarize()

    @property
    def nodes(self) -> Collection[str]:
        """Return the names of its nodes."""
        return self._rows

    def refresh(self, touched: Collection[str] | None, ranks: Ranks, now: str = "") -> Iterator[None]:
        """Update the nodes in `touched`, or all if None. Yields between slices so that the caller can pause.

        `now`: RFC 3339, for rails that are seen degraded or dead for the first time.
        """
        self._domains.refresh()
        changed: set[topology.Domain] = set()
        nodes = {**self._rows, **self._cluster.nodes} if touched is None else touched
        for count, name in enumerate(nodes, 1):
            changed |= self._update_node(name, ranks, now)
            if count % SLICE == 0:
                yield
        for leaf in changed:
            self._update_leaf(leaf)
        if changed:
            self.summary = self._summarize()

    def _update_node(self, name: str, ranks: Ranks, now: str) -> set[topology.Domain]:
        """Update the row of a node; return the leaves that this changes."""
        node = self._cluster.nodes.get(name)
        old_row, old_leaf = self._rows.get(name), self._leaf_by_node.get(name)
        if node is None or not self._is_part(node):
            row, leaf = None, None
        else:
            row = self._build_row(node, ranks, old_row, now)
            leaf = self._domains.leaf_by_node.get(name, topology.NO_DOMAIN)
        if row == old_row and leaf == old_leaf:
            return set()
        if old_leaf is not None:
            self._nodes_by_leaf[old_leaf].discard(name)
            del self._rows[name], self._leaf_by_node[name]
        if row is not None and leaf is not None:
            self._rows[name], self._leaf_by_node[name] = row, leaf
            self._nodes_by_leaf[leaf].add(name)
        return {domain for domain in (old_leaf, leaf) if domain is not None}

    def _update_leaf(self, leaf: topology.Domain) -> None:
        key = "/".join((self.name, *reversed(leaf)))  # the fabric and the full chain of domains
        if not self._nodes_by_leaf[leaf]:
            del self._nodes_by_leaf[leaf]
            self.leaves.pop(key, None)
            return
        self.leaves[key] = overview_types.Leaf(
            fabric=self.name,
            name=leaf[0] if leaf else "",
            above=tuple(part for part in leaf[1:] if part),
            nodes=tuple(self._rows[name] for name in sorted(self._nodes_by_leaf[leaf], key=text.build_natural_key)),
        )

    def get_leaf(self, node: str) -> topology.Domain:
        """Return the leaf of a node; NO_DOMAIN if it has none."""
        return self._leaf_by_node.get(node, topology.NO_DOMAIN)

    def _summarize(self) -> overview_types.Fabric:
        free, busy, dead = count_rails(self._rows.values())
        return overview_types.Fabric(
            name=self.name,
            transport=self.fabric.transport.value,
            rails=self._rails,
            levels=self._levels,
            leaves=tuple(sorted(self.leaves, key=lambda key: _build_leaf_sort_key(self.leaves[key]))),
            nodes=len(self._rows),
            rails_free=free,
            rails_busy=busy,
            rails_dead=dead,
            gpus=sum(row.gpus for row in self._rows.values()),
            gpus_used=sum(row.gpus_used for row in self._rows.values()),
            leaves_free=sum(bool(leaf.name) and all(map(_is_free, leaf.nodes)) for leaf in self.leaves.values()),
            device_class=self.fabric.claims.device_class if self.fabric.claims is not None else "",
        )

    # --- one node -------------------------------------------------------------------------------------------

    def _is_part(self, node: object_info.NodeInfo) -> bool:
        """Return whether a node belongs to this fabric, also if its device plugin currently reports nothing."""
        resource_names = node.capacity.keys() | node.allocatable.keys()
        if not resource_names.isdisjoint(self._pools):
            return True
        if not resource_names.isdisjoint(self._foreign_resources):
            return False
        has_leaf = bool(self._domains.leaf_by_node.get(node.name)) or any(node.labels.get(key) for key in self._levels)
        return has_leaf or not resource_names.isdisjoint(self._accelerators)

    def _build_row(
        self, node: object_info.NodeInfo, ranks: Ranks, old_row: overview_types.Node | None, now: str
    ) -> overview_types.Node:
        """Return the row of a node. `old_row` is its last one."""
        pods = tuple(self._list_pods(node, ranks))
        used = {rail for pod in pods for rail in pod.rails}
        notes, held = _list_unavailable_rails(self.fabric, node, self._cluster, used)
        broken = [
            f"{rail}: the node's annotation {names.BROKEN_RAILS} names it"
            for rail in self._rails
            if rail in node.broken_rails
        ]
        rail_states = "".join(self._list_rail_states(node, used | held))
        note = self._describe_note(node)
        return overview_types.Node(
            name=node.name,
            rails=rail_states,
            note=note.text,
            note_at=note.at,
            taints=note.taints,
            pods=pods,
            gpus=sum(node.allocatable.get(name, 0) for name in self._accelerators) // resources.UNIT,
            gpus_used=self._count_used_gpus(node.name),
            faulty_since=_update_faulty_since(rail_states, old_row, now),
            rail_notes=(*notes, *broken),
        )

    def _describe_note(self, node: object_info.NodeInfo) -> NodeNote:
        note = self._notes.find(node.name) if self._notes is not None else None
        if note is not None:
            return note
        return NodeNote(text="" if node.schedulable else UNSPECIFIED)

    def _count_used_gpus(self, node: str) -> int:
        used = self._cluster.get_used(node)
        assumed = [pod.requests for pod in self._assumed.list_on_node(node) if not self._is_bound(pod.uid)]
        return (
            sum(requests.get(name, 0) for requests in (used, *assumed) for name in self._accelerators) // resources.UNIT
        )

    def _is_bound(self, uid: str) -> bool:
        pod = self._cluster.pods.get(uid)
        return pod is not None and bool(pod.node)

    def _list_rail_states(self, node: object_info.NodeInfo, used: Collection[int]) -> Iterator[str]:
        broken = {row.rail for row in broken_rails.find_broken(node, self.fabric.rails)}
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
            (assumed_pod for assumed_pod in self._assumed.list_on_node(node.name) if assumed_pod.uid not in uids),
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
    """Return why rails that come as claims are unavailable, and the positions of those that claims of others hold.

    A device is tainted, held by a claim, or missing. The rails `used` are those of pods that are listed with the node.
    """
    if fabric.claims is None:
        return (), frozenset()
    notes: list[str] = []
    held: set[int] = set()
    on_node = cluster.devices.list_named(node.name)
    for position, rail in enumerate(fabric.rails):
        if not rail.resource:
            continue
        capacity = node.capacity.get(rail.resource, 0) // resources.UNIT
        if not capacity:
            missing = f"no device of DeviceClass {fabric.claims.device_class} in the ResourceSlices of the node"
            notes.append(f"{rail.name}: {missing} matches it")
        own = [device for device, names in on_node if rail.resource in names]
        tainted = [(device.id.device, taint) for device in own if (taint := device.find_taint())]
        notes += [f"{rail.name}: device {device} has the taint {taint}" for device, taint in tainted]
        holders = [
            (device.id.device, claim)
            for device in own
            if not device.find_taint() and (claim := cluster.devices.find_holder(device.id)) is not None
        ]
        if holders and len(tainted) + len(holders) >= capacity and position not in used:
            held.add(position)
            notes += [
                f"{rail.name}: device {device} is held by {_name_holder(claim, cluster)}" for device, claim in holders
            ]
    return tuple(notes), frozenset(held)


def _name_holder(claim: objects.ResourceClaim, cluster: cluster_state.ClusterState) -> str:
    pods = ", ".join(pod.key for pod in pod_usage.list_claim_pods(claim, cluster))
    return f"claim {claim.metadata.full_name}" + (f" of pod {pods}" if pods else "")


def count_rails(rows: Collection[overview_types.Node]) -> tuple[int, int, int]:
    """Return the numbers of free, busy and dead rails. A degraded rail is busy if a pod uses it, else free."""
    states = "".join([row.rails for row in rows])
    dead, busy = states.count(overview_types.DEAD), sum(map(_count_busy_rails, rows))
    return max(0, len(states) - busy - dead - states.count(overview_types.UNCOUNTED)), busy, dead


def _count_busy_rails(row: overview_types.Node) -> int:
    """Count the rails of a node that pods or claims use and that are not dead."""
    used = {rail for pod in row.pods for rail in pod.rails}
    used.update(rail for rail, state in enumerate(row.rails) if state == overview_types.BUSY)
    return sum(row.rails[rail] != overview_types.DEAD for rail in used)


def _is_free(row: overview_types.Node) -> bool:
    """True if a node can be used, and no pod has its rails or GPUs."""
    has_all_rails = {overview_types.DEAD, overview_types.BUSY}.isdisjoint(row.rails)
    return not row.note and not row.pods and not row.gpus_used and has_all_rails


_FAULTY = (overview_types.DEAD, overview_types.DEGRADED)


def _update_faulty_since(rail_states: str, old_row: overview_types.Node | None, now: str) -> Mapping[str, str]:
    """Return rail number -> when the rail became faulty, for the rails that were healthy when first seen."""
    if old_row is None:
        return {}
    since: dict[str, str] = {}
    for rail, (state, before) in enumerate(zip(rail_states, old_row.rails, strict=True)):
        at = old_row.faulty_since.get(str(rail), "") if before in _FAULTY else now
        if state in _FAULTY and at:
            since[str(rail)] = at
    return since


def _build_leaf_sort_key(leaf: overview_types.Leaf) -> tuple[bool, list[text.NaturalKey], text.NaturalKey]:
    """Return a sort key that groups leaves by spine and puts nodes without a leaf last."""
    above = [text.build_natural_key(part) for part in reversed(leaf.above)]
    return (not leaf.name, above, text.build_natural_key(leaf.name))
