"""The nodes, what runs on them and which gangs those pods form: the state every placement is decided on.

A reducer fed by events (replace, upsert and remove of nodes, pods and PodGroups, in any order and any number of
times) and read by decisions; it holds no clock and no tentative allocation (that is the ledger's). A pod counts
against its node from binding until it is gone or has ended, also while it terminates (faults 46 and 47).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from fabric import resources, topology, views, workload
from fabric.placement import journal, numa
from fabric.policy import model


class FleetNode(msgspec.Struct, frozen=True):
    """A node as placement sees it."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: resources.Amounts
    capacity: resources.Amounts
    taints: tuple[views.Taint, ...]
    schedulable: bool  # Ready and not cordoned


class FleetPod(msgspec.Struct, frozen=True):
    """A pod as placement sees it."""

    uid: str
    key: str  # namespace/name, as shown to people; one text however many explanations hold it
    node: str  # "" until bound
    gang: workload.GangKey
    rank: workload.Rank
    requests: resources.Amounts


_ENDED = frozenset({"Succeeded", "Failed"})


class Fleet:
    """Nodes, pods and PodGroups, indexed for placement."""

    def __init__(self) -> None:
        self._nodes: dict[str, FleetNode] = {}
        self._pods: dict[str, FleetPod] = {}
        self._on_node: dict[str, dict[str, FleetPod]] = defaultdict(dict)
        self._used: dict[str, dict[str, int]] = defaultdict(dict)
        self._gangs: dict[workload.GangKey, dict[str, FleetPod]] = defaultdict(dict)
        self._free: dict[str, dict[str, int]] = {}  # worked out when asked for, until something changes
        self._least: dict[str, int] = {}
        self.generation = 0  # grows with every change: what was planned on an older one may be planned anew
        self.journal = journal.Journal()

    # --- what decisions read --------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, FleetNode]:
        """All nodes by name."""
        return self._nodes

    @property
    def pods(self) -> Mapping[str, FleetPod]:
        """All pods that have not ended, by uid."""
        return self._pods

    def used(self, node: str) -> resources.Amounts:
        """What the pods bound to a node take of it."""
        return self._used.get(node, {})

    def free(self, node: str) -> resources.Amounts:
        """What is left of a known node's allocatable; negative where more is taken than there is."""
        found = self._free.get(node)
        if found is None:
            found = dict(self._nodes[node].allocatable)
            for name, amount in self._used.get(node, {}).items():
                found[name] = found.get(name, 0) - amount
            self._free[node] = found
        return found

    def on_node(self, node: str) -> Iterator[FleetPod]:
        """The pods bound to a node."""
        return iter(self._on_node.get(node, {}).values())

    def gang(self, key: workload.GangKey) -> Mapping[str, FleetPod]:
        """The pods of a gang seen so far, bound or not, by uid; without those on their way out."""
        return self._gangs.get(key, {}) if key else {}

    def gang_size(self, key: workload.GangKey, *, seen: int) -> int:
        """Pods the gang has: its PodGroup's minMember or the pods seen, whichever is more (ruling 19)."""
        return max(self._least.get(key, 0), seen, 1)

    def place(self, node: FleetNode, domains: tuple[str, ...]) -> topology.Place:
        """The place of a node in these domains, closest first."""
        return topology.place_of(node.labels, domains)

    def zones(
        self,
        node: FleetNode,
        shape: model.NodeShape | None,
        rails: Sequence[model.Rail],
        accelerators: Sequence[str],
        others: Iterable[resources.Amounts] = (),
    ) -> numa.Zones:
        """What is free on each NUMA node of a node; () where its layout is not known."""
        if shape is None:
            return ()
        held = [pod.requests for pod in self.on_node(node.name)]
        return numa.charged(numa.of_shape(shape, rails, node.allocatable, accelerators), [*held, *others])

    # --- what events write ----------------------------------------------------------------------------

    def upsert_node(self, node: views.Node) -> None:
        """A node appeared or changed."""
        conditions = node.status.conditions or ()
        ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
        self._nodes[node.metadata.name] = FleetNode(
            name=node.metadata.name,
            uid=node.metadata.uid,
            labels=dict(node.metadata.labels),
            allocatable=resources.amounts(node.status.allocatable),
            capacity=resources.amounts(node.status.capacity),
            taints=tuple(node.spec.taints or ()),
            schedulable=ready and not node.spec.unschedulable,
        )
        self._touched(node.metadata.name)

    def remove_node(self, name: str) -> None:
        """A node is gone; its pods stay known until they go themselves."""
        self._nodes.pop(name, None)
        self._touched(name)

    def upsert_pod(self, pod: views.Pod) -> None:
        """A pod appeared, changed, was bound, or ended."""
        uid = pod.metadata.identity
        if pod.status.phase in _ENDED:
            self.remove_pod(uid)
            return
        self._forget(uid)
        entry = FleetPod(
            uid=uid,
            key=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=pod.spec.node_name,
            gang=workload.gang_of(pod),
            rank=workload.rank_of(pod),
            requests=resources.requests_of(pod.spec),
        )
        self._pods[uid] = entry
        if entry.gang and not pod.metadata.deletion_timestamp:  # one on its way out is replaced, not joined
            self._gangs[entry.gang][uid] = entry
        if entry.node:
            self._on_node[entry.node][uid] = entry
            self._charge(entry, sign=1)
        self.generation += 1

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._forget(uid)
        self.generation += 1

    def upsert_pod_group(self, group: views.PodGroup) -> None:
        """A PodGroup appeared or changed."""
        self._least[f"{group.metadata.namespace}/{group.metadata.name}"] = group.spec.min_member
        self.generation += 1

    def remove_pod_group(self, namespace: str, name: str) -> None:
        """A PodGroup is gone."""
        self._least.pop(f"{namespace}/{name}", None)
        self.generation += 1

    def replace_nodes(self, nodes: Sequence[views.Node]) -> None:
        """The full list of nodes."""
        gone = self._nodes.keys() - {node.metadata.name for node in nodes}
        for name in gone:
            self.remove_node(name)
        for node in nodes:
            self.upsert_node(node)

    def replace_pods(self, pods: Sequence[views.Pod]) -> None:
        """The full list of pods."""
        gone = self._pods.keys() - {pod.metadata.identity for pod in pods}
        for uid in gone:
            self.remove_pod(uid)
        for pod in pods:
            self.upsert_pod(pod)

    def _forget(self, uid: str) -> None:
        entry = self._pods.pop(uid, None)
        if entry is None:
            return
        if entry.gang in self._gangs:
            mates = self._gangs[entry.gang]
            mates.pop(uid, None)
            if not mates:
                del self._gangs[entry.gang]
        if entry.node:
            self._on_node[entry.node].pop(uid, None)
            self._charge(entry, sign=-1)
            if not self._on_node[entry.node]:  # nodes come and go; their empty tables must not stay
                self._on_node.pop(entry.node, None)
                self._used.pop(entry.node, None)

    def _touched(self, node: str) -> None:
        self._free.pop(node, None)
        self.journal.touch(node)
        self.generation += 1

    def _charge(self, entry: FleetPod, *, sign: int) -> None:
        self._free.pop(entry.node, None)
        self.journal.touch(entry.node)
        used = self._used[entry.node]
        for name, amount in entry.requests.items():
            used[name] = used.get(name, 0) + sign * amount


def place_of(node: FleetNode | None, keys: Sequence[str]) -> topology.Place:
    """The place of a node; one without labels for a node that is not known."""
    return topology.place_of(node.labels if node else {}, keys)
