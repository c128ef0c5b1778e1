"""The cached cluster state: nodes, the pods on them, the gangs of these pods, and the domains of nodes.

Updated by events (replace, upsert and remove of nodes, HyperNodes, pods and objects that declare gang sizes), which may
arrive in any order and repeatedly. A pod uses its node's resources from binding until it has ended or is deleted, also
while it terminates. Pods that a scheduler has placed and no event shows yet are in `ClusterState.assumed` only.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import hypernodes, node_views, resources, topology, views
from railwright.fabric.claims import inventory
from railwright.fabric.placement.state import assumed_pods, declared_sizes, object_info
from railwright.fabric.workloads import membership

_MAX_CHANGES = 65536  # names, also of nodes that are gone


class ChangeLog:
    """The names of nodes that changed, by latest change, so that caches recompute only these.

    Each reader stores its own position. A reader that reads too rarely misses changes: at most _MAX_CHANGES names are
    kept.
    """

    def __init__(self) -> None:
        self.position = 0  # of a reader that is up to date
        self._positions: dict[str, int] = {}  # name -> position after its latest change, in this order

    def record(self, node: str) -> None:
        """Record a change of a node."""
        self.position += 1
        self._positions.pop(node, None)
        self._positions[node] = self.position
        if len(self._positions) > _MAX_CHANGES:
            del self._positions[next(iter(self._positions))]

    def read_since(self, position: int) -> Sequence[str]:
        """Return the nodes that changed after this position."""
        latest_first = itertools.takewhile(lambda name: self._positions[name] > position, reversed(self._positions))
        return list(latest_first)[::-1]


class PodIndex:
    """Pods by UID, node, gang and claim; ended pods only if they have a gang. Empty nodes and gangs have no entry."""

    def __init__(self) -> None:
        self.by_uid: dict[str, object_info.PodInfo] = {}
        self.by_node: dict[str, dict[str, object_info.PodInfo]] = {}  # bound pods
        self.by_gang: dict[membership.GangKey, dict[str, object_info.PodInfo]] = {}  # not terminating ones
        self.ended: dict[str, membership.GangKey] = {}  # UID -> gang, of those that have one
        self.ended_by_gang: dict[membership.GangKey, dict[str, object_info.PodInfo]] = {}
        # namespace/name of a claim or template -> pods whose specs name it
        self.by_claim: dict[str, dict[str, object_info.PodInfo]] = {}

    def add(self, pod: object_info.PodInfo, *, joins_gang: bool) -> None:
        """Add a pod that is not indexed. `joins_gang` is False for a pod that terminates or has no gang."""
        self.by_uid[pod.uid] = pod
        for key in (*pod.claim_names, *pod.templates):
            self.by_claim.setdefault(key, {})[pod.uid] = pod
        if joins_gang:
            self.by_gang.setdefault(pod.gang, {})[pod.uid] = pod
        if pod.node:
            self.by_node.setdefault(pod.node, {})[pod.uid] = pod

    def remove(self, uid: str) -> object_info.PodInfo | None:
        """Remove a pod, and return it; None if it is unknown."""
        pod = self.by_uid.pop(uid, None)
        if pod is not None:
            for key in (*pod.claim_names, *pod.templates):
                assumed_pods.remove_entry(self.by_claim, key, uid)
            assumed_pods.remove_entry(self.by_gang, pod.gang, uid)
            assumed_pods.remove_entry(self.by_node, pod.node, uid)
        return pod

    def add_ended(self, pod: object_info.PodInfo) -> None:
        """Add or replace an ended pod that is a member of a gang."""
        self.ended[pod.uid] = pod.gang
        self.ended_by_gang.setdefault(pod.gang, {})[pod.uid] = pod

    def remove_ended(self, uid: str) -> None:
        """Remove an ended pod; no error if it is unknown."""
        if (gang := self.ended.pop(uid, None)) is not None:
            assumed_pods.remove_entry(self.ended_by_gang, gang, uid)


# --- the state ------------------------------------------------------------------------------------------------

_MAX_AMOUNTS = 4096  # distinct amounts of nodes and pods; the memory of nodes of one type may differ by bytes
_NO_NAMES: frozenset[str] = frozenset()


class ClusterState:
    """Nodes with their domains, pods, and gang sizes, indexed for placement."""

    def __init__(self) -> None:
        self.nodes: dict[str, object_info.NodeInfo] = {}  # by name
        self._reported: dict[str, object_info.NodeInfo] = {}  # without the devices of slices
        self.nodes_with_broken_rails: set[str] = set()  # that may have some (`broken_rails`); most clusters have few
        self.devices = inventory.Inventory()
        self.change_log = ChangeLog()
        self.assumed = assumed_pods.AssumedPods(self.change_log.record)
        self._offered: dict[str, inventory.NodeDevices] = {}  # of known nodes
        self._pods = PodIndex()
        self.pods: Mapping[str, object_info.PodInfo] = self._pods.by_uid  # that have not ended, by UID
        self._names_version = 0  # of the inventory, for which the requests of pods were computed
        self._claimable: dict[str, frozenset[str]] = {}  # resources that nodes have by slices only
        self.topology_reports: dict[str, node_views.NodeResourceTopology] = {}  # by node, of those that have one
        self._amounts: dict[resources.FrozenAmounts, resources.FrozenAmounts] = {}  # one object for equal amounts
        self._requests = resources.RequestReader(self._share_amounts)
        self._reducer = object_info.PodReducer()
        self.sizes = declared_sizes.DeclaredSizes(self._record_size_change)
        self.hyper_nodes = hypernodes.Tree(self._record_change_of_all)
        self.version = 0  # incremented by every change
        self.nodes_version = 0  # incremented by changes of nodes, which are rarer than those of pods

    # --- reading --------------------------------------------------------------------------------------

    def get_used(self, node: str) -> resources.Amounts:
        """Return the requests of all pods bound to a node.

        Devices that the node offers only in ResourceSlices count as used if a ResourceClaim holds them.
        """
        used: Counter[str] = Counter()
        for pod in self.list_pods_on(node):
            used.update(pod.requests)
        names = self.list_slice_resources(node)
        if not names:
            return used
        allocated = self._offered[node].allocated
        return {**used, **{name: allocated.get(name, 0) for name in names}}

    @property
    def has_slices(self) -> bool:
        """True if a node of the cluster has devices from ResourceSlices."""
        return self.devices.has_devices

    def list_slice_resources(self, node: str) -> frozenset[str]:
        """Return the resources of a node that come from ResourceSlices and not from a device plugin."""
        return self._claimable.get(node, _NO_NAMES)

    def compute_requests(self, pod: views.Pod) -> resources.FrozenAmounts:
        """Return the requests of a pod that a scheduler sent: those of its containers and of its claims.

        They are computed once for a pod that the watch has shown.
        """
        if (known := self.pods.get(pod.metadata.identity)) is not None:
            return known.requests
        requests = self.devices.add_requests(inventory.build_pod_key(pod), resources.compute_requests(pod.spec))
        return self._amounts.get(requests, requests)

    def get_free(self, node: str) -> resources.Amounts:
        """Return a node's allocatable minus the requests of its bound pods; negative if overcommitted."""
        free = self.nodes[node].allocatable
        if used := self.get_used(node):
            return {**free, **{name: free.get(name, 0) - amount for name, amount in used.items()}}
        return free

    def list_pods_on(self, node: str) -> Iterator[object_info.PodInfo]:
        """Return the pods bound to a node."""
        return iter(self._pods.by_node.get(node, {}).values())

    def get_gang(self, key: membership.GangKey) -> Mapping[str, object_info.PodInfo]:
        """Return the existing pods of a gang by UID, bound or not, without terminating ones."""
        return self._pods.by_gang.get(key, {})

    @property
    def opted_in_gangs(self) -> Collection[membership.GangKey]:
        """Return the gangs with an opted-in pod that is not terminating."""
        gangs = self._pods.by_gang.items()
        return dict.fromkeys([gang for gang, pods in gangs if any(pod.reduced is not None for pod in pods.values())])

    def get_gang_size(self, key: membership.GangKey, *, observed: int) -> int:
        """Return the gang size without members that have ended: declared, or the number of pods observed if larger."""
        ended = len(self.list_ended(key))
        return max(self.sizes.get_declared(key, ended=ended), observed, 1)

    def list_ended(self, key: membership.GangKey) -> Collection[object_info.PodInfo]:
        """Return the members of a gang that have ended without a successor, one of each name without random suffix."""
        ended = self._pods.ended_by_gang.get(key)
        if not ended:
            return ()
        present = {pod.stable_name for pod in self.get_gang(key).values()}
        return {pod.stable_name: pod for pod in ended.values() if pod.stable_name not in present}.values()

    def locate_node(
        self, node: object_info.NodeInfo, domains: tuple[str, ...], rails: Sequence[str] = ()
    ) -> topology.Place:
        """Return the node's value of each domain key, lowest level first; "" if it has none.

        `rails` are the names of the fabric's rails, for keys with the placeholder topology.RAIL.
        """
        labels = node.labels
        if hypernodes.has_level(domains):
            labels = {**labels, **self.hyper_nodes.find_hypernodes(node.name, labels)}
        return topology.read_domains(labels, domains, rails)

    # --- events ---------------------------------------------------------------------------------------

    def upsert_node(self, node: node_views.Node) -> None:
        """Add or update a node."""
        info = object_info.read_node(node, self._share_amounts)
        if info != self._reported.get(info.name):  # most updates are heartbeats, which must not invalidate plans
            self._reported[info.name] = info
            self._complete_nodes([info.name])

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay until they are removed."""
        self.nodes.pop(name, None)
        self._reported.pop(name, None)
        self._claimable.pop(name, None)
        self._offered.pop(name, None)
        self.nodes_with_broken_rails.discard(name)
        self.hyper_nodes.forget_node(name)
        self.nodes_version += 1
        self._record_change(name)

    def upsert_pod(self, pod: views.Pod) -> None:
        """Add or update a pod. A pod that has ended uses nothing, and counts as an ended member of its gang."""
        claims = inventory.build_pod_key(pod)
        uid = claims.uid
        if pod.status.has_ended and not membership.find_gang(pod):
            self.remove_pod(uid)
            return
        container_requests = self._requests.compute(pod.spec)
        requests = self._add_claims(claims, container_requests)
        info = object_info.read_pod(pod, claims, requests, container_requests, self._reducer.reduce(pod))
        if pod.status.has_ended:
            if info != self._pods.ended_by_gang.get(info.gang, {}).get(uid):
                self.remove_pod(uid)
                self._pods.add_ended(info)
            return
        joins_gang = bool(info.gang) and not info.is_ending  # it will be replaced
        size = membership.read_annotated_size(pod) if joins_gang else 0
        if not size and info == self.pods.get(uid) and joins_gang == (uid in self.get_gang(info.gang)):
            return  # only fields changed that placement does not use
        self._remove_from_indexes(uid)
        self._pods.add(info, joins_gang=joins_gang)
        if size:
            self.sizes.set_sizes(membership.PODS, info.gang, {info.gang: size})
        self._record_pod_change(info)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        self._remove_from_indexes(uid)
        self._pods.remove_ended(uid)
        self.version += 1

    def change_devices(self, change: Callable[[inventory.Inventory], inventory.Changes]) -> AbstractSet[str]:
        """Apply a change of ResourceSlices, claims, claim templates, DeviceClasses, or the policy's names of devices.

        Updates the nodes and pods that `change` returns, and the pods that name its claims. Returns the UIDs of the
        updated pods.
        """
        changes = change(self.devices)
        uids = set(changes.uids).union(*(self._pods.by_claim.get(key, _NO_NAMES) for key in changes.keys))
        self._complete_nodes(changes.nodes)
        self._update_pods([self.pods[uid] for uid in uids if uid in self.pods])
        if self.devices.names.version != self._names_version:  # a device of a new kind may be of another rail
            self._names_version = self.devices.names.version
            self._update_pods([pod for pod in self.pods.values() if pod.templates or pod.claim_names])
        self.version += 1
        return uids

    def upsert_topology(self, report: node_views.NodeResourceTopology) -> None:
        """Add or update a NodeResourceTopology, which has the name of its node."""
        if report != self.topology_reports.get(report.metadata.name):  # exporters write periodically, changed or not
            self.topology_reports[report.metadata.name] = report
            self._record_change(report.metadata.name)

    def remove_topology(self, name: str) -> None:
        """Remove a NodeResourceTopology."""
        self.topology_reports.pop(name, None)
        self._record_change(name)

    def replace_topologies(self, reports: Sequence[node_views.NodeResourceTopology]) -> None:
        """Replace all NodeResourceTopologies."""
        for name in self.topology_reports.keys() - {report.metadata.name for report in reports}:
            self.remove_topology(name)
        for report in reports:
            self.upsert_topology(report)

    def replace_nodes(self, nodes: Sequence[node_views.Node]) -> None:
        """Replace all nodes."""
        for name in self.nodes.keys() - {node.metadata.name for node in nodes}:
            self.remove_node(name)
        for node in nodes:
            self.upsert_node(node)

    def replace_pods(self, pods: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        for uid in {*self.pods, *self._pods.ended} - {pod.metadata.identity for pod in pods}:
            self.remove_pod(uid)
        for pod in pods:
            self.upsert_pod(pod)

    def _share_amounts(self, amounts: resources.Amounts) -> resources.FrozenAmounts:
        """Return the stored object that equals `amounts`. Nodes of one type, and pods of one gang, share it."""
        if len(self._amounts) >= _MAX_AMOUNTS:
            self._amounts.clear()  # existing references stay valid
        frozen = resources.freeze_amounts(amounts)
        return self._amounts.setdefault(frozen, frozen)

    def _complete_nodes(self, changed: Collection[str]) -> None:
        """Add the devices of slices to these nodes, which have only the resources that kubelet reports."""
        for name in changed:
            reported = self._reported.get(name)
            if reported is not None:
                node = self._add_devices(reported)
                if node != self.nodes.get(name):
                    self.nodes[name] = node
                    self.nodes_version += 1
                    self.nodes_with_broken_rails.discard(name)
                    if object_info.may_have_broken_rails(node):
                        self.nodes_with_broken_rails.add(name)
            self._record_change(name)

    def _add_devices(self, reported: object_info.NodeInfo) -> object_info.NodeInfo:
        """Return a node with the devices of its slices that kubelet does not report."""
        name, offered = reported.name, self.devices.count_devices(reported.name)
        names = frozenset(name for name in offered.capacity if not reported.allocatable.get(name))
        self._offered[name], self._claimable[name] = offered, names
        if not names:
            return reported
        allocatable = {**reported.allocatable, **{name: offered.allocatable.get(name, 0) for name in names}}
        capacity = {**reported.capacity, **{name: offered.capacity[name] for name in names}}
        return msgspec.structs.replace(
            reported, allocatable=self._share_amounts(allocatable), capacity=self._share_amounts(capacity)
        )

    def _update_pods(self, pods: Iterable[object_info.PodInfo]) -> None:
        """Recompute the requests of these pods, because their claims changed."""
        for previous in pods:
            requests = self._add_claims(previous.claims, previous.container_requests)
            if requests != previous.requests:
                joins_gang = previous.uid in self.get_gang(previous.gang)
                self._pods.remove(previous.uid)
                self._pods.add(msgspec.structs.replace(previous, requests=requests), joins_gang=joins_gang)
            self._record_pod_change(previous)

    def _add_claims(
        self, claims: inventory.PodKey, container_requests: resources.FrozenAmounts
    ) -> resources.FrozenAmounts:
        """Return the requests of a pod: those of its containers and of its claims."""
        requests = self.devices.add_requests(claims, container_requests)
        return requests if requests is container_requests else self._share_amounts(requests)

    def _record_size_change(self) -> None:
        self.version += 1

    def _record_change_of_all(self) -> None:
        """Record that the topology of any node may have changed."""
        for name in self.nodes:
            self.change_log.record(name)
        self.version += 1

    def _remove_from_indexes(self, uid: str) -> None:
        info = self._pods.remove(uid)
        if info is None:
            return
        if info.gang and info.gang not in self._pods.by_gang:
            self.sizes.set_sizes(membership.PODS, info.gang, {})
        self._record_pod_change(info)

    def _record_pod_change(self, pod: object_info.PodInfo) -> None:
        """Record a change of a pod, and of the node whose resources it uses."""
        if pod.node:
            self._record_change(pod.node)
        self.version += 1

    def _record_change(self, node: str) -> None:
        self.change_log.record(node)
        self.version += 1
