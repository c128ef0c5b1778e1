"""The cached cluster state: nodes, the pods on them, and the gangs of these pods.

Updated by events (replace, upsert and remove of nodes, HyperNodes, pods and objects that declare gang sizes), which may
arrive in any order and repeatedly. Assumed pods are not part of it. A pod uses its node's resources from binding until
it has ended or is deleted, also while it terminates (rows 46 and 47 of tests/data/faults.yaml).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import hypernodes, intent, interning, resources, topology, views
from railwright.fabric.claims import inventory, objects
from railwright.fabric.placement.state import change_log, claimed_devices, declared_sizes
from railwright.fabric.workloads import gang_sizes, kinds, membership, volcano


class NodeInfo(msgspec.Struct, gc=False, frozen=True):
    """The fields of a node that placement uses. Amounts include the devices of its ResourceSlices."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: resources.FrozenAmounts
    capacity: resources.FrozenAmounts
    taints: tuple[views.Taint, ...]
    schedulable: bool  # Ready and not cordoned


class PodInfo(msgspec.Struct, gc=False, frozen=True):
    """The fields of a pod that placement uses."""

    uid: str
    key: str  # namespace/name; one string object shared by all explanations
    node: str  # "" until bound
    gang: membership.GangKey
    rank: membership.Rank
    requests: resources.FrozenAmounts  # of its containers and of its claims
    container_requests: resources.FrozenAmounts
    claim_names: tuple[str, ...]  # namespace/name of the claims that its spec names
    bound_at: str = ""  # RFC 3339 in seconds, by the API server's clock; "" until bound or if unknown
    policy: str = ""  # digest of the policy it was admitted under; "" if it was not injected

    @property
    def claims(self) -> inventory.PodKey:
        """Return the key of its claims."""
        return inventory.PodKey(self.uid, self.claim_names)


_MAX_AMOUNTS = 4096  # distinct amounts of nodes and pods; the memory of nodes of one type may differ by bytes
_ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class ClusterState:
    """Nodes with their domains, pods, and gang sizes, indexed for placement."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._reported: dict[str, NodeInfo] = {}  # without the devices of slices
        self._claimed = claimed_devices.ClaimedDevices()
        self._pods: dict[str, PodInfo] = {}
        self._pods_by_node: dict[str, dict[str, PodInfo]] = defaultdict(dict)
        self._used: dict[str, dict[str, int]] = defaultdict(dict)
        self._pods_by_gang: dict[membership.GangKey, dict[str, PodInfo]] = defaultdict(dict)
        self._free: dict[str, resources.FrozenAmounts] = {}  # computed on demand, invalidated by changes
        self._topologies: dict[str, views.NodeResourceTopology] = {}
        self._shared_amounts: dict[
            resources.FrozenAmounts, resources.FrozenAmounts
        ] = {}  # one object for equal amounts
        self._interner = interning.StringInterner()
        self._sizes = declared_sizes.Sizes()
        self._tree = hypernodes.Tree()
        self.version = 0  # version, incremented by every change
        self.topology_version = (
            0  # incremented by changes of nodes or topology only, which are rarer than changes of pods
        )
        self.change_log = change_log.ChangeLog()

    # --- reading --------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Return all nodes by name."""
        return self._nodes

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """Return all pods that have not ended, by UID."""
        return self._pods

    def get_used(self, node: str) -> resources.Amounts:
        """Return the requests of all pods bound to a node. Devices of slices are counted by their claims."""
        used = self._used.get(node, {})
        names = self.list_claimable(node)
        if not names:
            return used
        pods = [claimed_devices.Requester(pod.claims, pod.requests) for pod in self.list_pods_on(node)]
        return {**used, **self._claimed.count_used(node, names, pods)}

    @property
    def has_slices(self) -> bool:
        """True if devices come by ResourceSlices somewhere in the cluster."""
        return self._claimed.inventory.has_devices

    def list_claimable(self, node: str) -> Collection[str]:
        """Return the resources that a node has by ResourceSlices and not by a device plugin."""
        reported = self._reported.get(node)
        return self._claimed.list_names(node, reported.allocatable) if reported is not None else ()

    def compute_requests(self, pod: views.Pod, container_requests: resources.Amounts) -> resources.FrozenAmounts:
        """Return the requests of a pod: those of its containers, and the devices that its claims request."""
        return resources.freeze(self._claimed.add_requests(inventory.identify_claims(pod), container_requests))

    def list_nodes_of(self, uid: str) -> AbstractSet[str]:
        """Return the nodes whose resources a pod uses: that of its binding, otherwise those of its allocated claims."""
        pod = self._pods.get(uid)
        if pod is None:
            return frozenset()
        return {pod.node} if pod.node else self._claimed.inventory.list_allocated_nodes(pod.claims)

    def count_own_usage(self, uid: str, node: str) -> resources.Amounts:
        """Return what a pod uses on a node by the observed state.

        The claims of a pod are allocated before it is bound, and stay allocated if its binding fails.
        """
        pod = self._pods.get(uid)
        if pod is None:
            return {}
        if pod.node or not self.has_slices or node not in self._claimed.inventory.list_allocated_nodes(pod.claims):
            return pod.requests if pod.node == node else {}
        return {name: pod.requests[name] for name in self.list_claimable(node) if name in pod.requests}

    def get_free(self, node: str) -> resources.FrozenAmounts:
        """Return a node's allocatable minus the requests of its bound pods; negative if overcommitted."""
        free = self._free.get(node)
        if free is None:
            free = self._nodes[node].allocatable
            if used := self.get_used(node):
                free = self._share({**free, **{name: free.get(name, 0) - amount for name, amount in used.items()}})
            self._free[node] = free
        return free

    def list_pods_on(self, node: str) -> Iterator[PodInfo]:
        """Return the pods bound to a node."""
        return iter(self._pods_by_node.get(node, {}).values())

    def get_gang(self, key: membership.GangKey) -> Mapping[str, PodInfo]:
        """Return the existing pods of a gang by UID, bound or not, without terminating ones."""
        return self._pods_by_gang.get(key, {}) if key else {}

    def get_gang_size(self, key: membership.GangKey, *, observed: int) -> int:
        """Return the gang size: the larger of the declared size and the number of pods observed."""
        return max(self._sizes.get_declared(key), observed, 1)

    def locate(self, node: NodeInfo, domains: tuple[str, ...], rails: Sequence[str] = ()) -> topology.Place:
        """Return the node's value of each domain key, lowest level first; "" if it has none.

        `rails` are the names of the fabric's rails, for keys with the placeholder topology.RAIL.
        """
        labels = node.labels
        if hypernodes.are_among(domains):
            labels = {**labels, **self._tree.values(node.name, labels)}
        return topology.read_domains(labels, domains, rails)

    def find_hyper_node_problems(self) -> Sequence[str]:
        """Return one message for each problem of the HyperNodes that was ignored."""
        return self._tree.problems({node.name: node.labels for node in self._nodes.values()})

    def get_topology_report(self, node: str) -> views.NodeResourceTopology | None:
        """Return the NodeResourceTopology of a node, or None if no exporter writes one."""
        return self._topologies.get(node)

    # --- events ---------------------------------------------------------------------------------------

    def upsert_node(self, node: views.Node) -> None:
        """Add or update a node."""
        conditions = node.status.conditions or ()
        ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
        info = NodeInfo(
            name=node.metadata.name,
            uid=node.metadata.uid,
            labels=self._interner.intern_mapping(node.metadata.labels),
            allocatable=self._share(resources.parse_amounts(node.status.allocatable)),
            capacity=self._share(resources.parse_amounts(node.status.capacity)),
            taints=tuple(node.spec.taints or ()),
            schedulable=ready and not node.spec.unschedulable,
        )
        if info != self._reported.get(info.name):  # most updates are heartbeats, which must not invalidate plans
            self._reported[info.name] = info
            self._complete_nodes([info.name])

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay until they are removed."""
        self._nodes.pop(name, None)
        self._reported.pop(name, None)
        self._tree.forget(name)
        self.topology_version += 1
        self._record_change(name)

    def upsert_pod(self, pod: views.Pod) -> None:
        """Add or update a pod; a pod that has ended is removed."""
        uid = pod.metadata.identity
        if pod.status.phase in _ENDED_PHASES:
            self.remove_pod(uid)
            return
        container_requests = self._share(resources.compute_requests(pod.spec))
        claims = inventory.identify_claims(pod)
        entry = PodInfo(
            uid=uid,
            key=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=self._interner.intern(pod.spec.node_name),
            gang=membership.GangKey(self._interner.intern(membership.find_gang(pod))),
            rank=membership.find_rank(pod),
            requests=self._share(self._claimed.add_requests(claims, container_requests)),
            container_requests=container_requests,
            claim_names=claims.claims,
            bound_at=pod.status.bound_at if pod.spec.node_name else "",
            policy=self._interner.intern(intent.read_record(pod).digest),
        )
        joins = bool(entry.gang) and not pod.metadata.deletion_timestamp  # a terminating pod will be replaced
        size = gang_sizes.read_annotation(pod) if joins else 0
        if not size and entry == self._pods.get(uid) and joins == (uid in self.get_gang(entry.gang)):
            return  # only fields changed that placement does not use
        self._drop_pod(uid)
        self._pods[uid] = entry
        if joins:
            self._pods_by_gang[entry.gang][uid] = entry
            if size:
                self._sizes.set_report(gang_sizes.PODS, entry.gang, {entry.gang: size})
        if entry.node:
            self._pods_by_node[entry.node][uid] = entry
            self._add_usage(entry, sign=1)
        self.version += 1

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        self._drop_pod(uid)
        self.version += 1

    def change_devices(self, change: Callable[[inventory.Inventory], set[str]]) -> None:
        """Change slices, device classes or taint rules, and update the nodes that `change` returns."""
        self._complete_nodes(change(self._claimed.inventory))

    def upsert_claim(self, claim: objects.ResourceClaim) -> None:
        """Add or update a ResourceClaim."""
        known = self._claimed.inventory.list_consumers(claim)
        nodes = self._claimed.inventory.upsert_claim(claim)
        self._update_claims(nodes, known | claim.consumers)

    def remove_claim(self, claim: objects.ResourceClaim) -> None:
        """Remove a ResourceClaim."""
        known = self._claimed.inventory.list_consumers(claim)
        self._update_claims(self._claimed.inventory.remove_claim(claim), known)

    def replace_claims(self, claims: Sequence[objects.ResourceClaim]) -> None:
        """Replace all ResourceClaims."""
        self._update_claims(self._claimed.inventory.replace_claims(claims), self._pods)

    def upsert_pod_group(self, group: views.PodGroup) -> None:
        """Add or update a Volcano PodGroup."""
        self.upsert_size(volcano.POD_GROUPS, group)

    def upsert_size(self, kind: kinds.SizeKind, obj: declared_sizes.SizedObject) -> None:
        """Add or update an object that declares a gang size. Most updates change only its status."""
        self.version += self._sizes.upsert(kind, obj)

    def remove_size(self, kind: kinds.SizeKind, obj: declared_sizes.SizedObject) -> None:
        """Remove an object that declares a gang size."""
        self.version += self._sizes.set_report(kind, declared_sizes.get_source_object(obj.metadata), {})

    def replace_sizes(self, kind: kinds.SizeKind, objects: Sequence[declared_sizes.SizedObject]) -> None:
        """Replace all objects of a kind that declares gang sizes."""
        self.version += self._sizes.replace(kind, objects)

    def upsert_hyper_node(self, obj: hypernodes.HyperNode) -> None:
        """Add or update a HyperNode."""
        if self._tree.upsert(obj):
            self._record_change_of_all()

    def remove_hyper_node(self, name: str) -> None:
        """Remove a HyperNode."""
        if self._tree.remove(name):
            self._record_change_of_all()

    def replace_hyper_nodes(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """Replace all HyperNodes."""
        if self._tree.replace(objects):
            self._record_change_of_all()

    def upsert_topology(self, report: views.NodeResourceTopology) -> None:
        """Add or update a NodeResourceTopology, which has the name of its node."""
        if report != self._topologies.get(report.metadata.name):  # exporters write periodically, changed or not
            self._topologies[report.metadata.name] = report
            self._record_change(report.metadata.name)

    def remove_topology(self, name: str) -> None:
        """Remove a NodeResourceTopology."""
        self._topologies.pop(name, None)
        self._record_change(name)

    def replace_topologies(self, reports: Sequence[views.NodeResourceTopology]) -> None:
        """Replace all NodeResourceTopologies."""
        for name in self._topologies.keys() - {report.metadata.name for report in reports}:
            self.remove_topology(name)
        for report in reports:
            self.upsert_topology(report)

    def replace_nodes(self, nodes: Sequence[views.Node]) -> None:
        """Replace all nodes."""
        gone = self._nodes.keys() - {node.metadata.name for node in nodes}
        for name in gone:
            self.remove_node(name)
        for node in nodes:
            self.upsert_node(node)

    def replace_pods(self, pods: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        gone = self._pods.keys() - {pod.metadata.identity for pod in pods}
        for uid in gone:
            self.remove_pod(uid)
        for pod in pods:
            self.upsert_pod(pod)

    def _complete_nodes(self, changed: Iterable[str]) -> None:
        """Add the devices of slices to these nodes as kubelet reported them."""
        for reported in [self._reported[name] for name in changed if name in self._reported]:
            amounts = claimed_devices.NodeAmounts(reported.allocatable, reported.capacity)
            allocatable, capacity = self._claimed.complete(reported.name, amounts)
            self._nodes[reported.name] = msgspec.structs.replace(
                reported, allocatable=self._share(allocatable), capacity=self._share(capacity)
            )
            self.topology_version += 1
            self._record_change(reported.name)

    def _update_claims(self, nodes: Iterable[str], pods: Iterable[str]) -> None:
        """Update nodes whose devices claims took or returned, and the requests of the pods of these claims."""
        for name in nodes:
            self._record_change(name)
        for entry in [self._pods[uid] for uid in pods if uid in self._pods]:
            requests = self._share(self._claimed.add_requests(entry.claims, entry.container_requests))
            if requests != entry.requests:
                self._replace_pod(msgspec.structs.replace(entry, requests=requests))
            elif entry.node:
                self._record_change(entry.node)
        self.version += 1

    def _replace_pod(self, entry: PodInfo) -> None:
        """Replace a pod by one with other requests."""
        previous = self._pods[entry.uid]
        self._pods[entry.uid] = entry
        if entry.uid in self._pods_by_gang.get(entry.gang, {}):
            self._pods_by_gang[entry.gang][entry.uid] = entry
        if entry.node:
            self._add_usage(previous, sign=-1)
            self._pods_by_node[entry.node][entry.uid] = entry
            self._add_usage(entry, sign=1)

    def _record_change_of_all(self) -> None:
        """Record that the topology of any node may have changed."""
        self.change_log.record_all()
        self.topology_version += 1
        self.version += 1

    def _drop_pod(self, uid: str) -> None:
        entry = self._pods.pop(uid, None)
        if entry is None:
            return
        if entry.gang in self._pods_by_gang:
            peers = self._pods_by_gang[entry.gang]
            peers.pop(uid, None)
            if not peers:
                del self._pods_by_gang[entry.gang]
                self._sizes.set_report(gang_sizes.PODS, entry.gang, {})
        if entry.node:
            self._pods_by_node[entry.node].pop(uid, None)
            self._add_usage(entry, sign=-1)
            if not self._pods_by_node[entry.node]:  # deleted nodes must not leave empty tables behind
                self._pods_by_node.pop(entry.node, None)
                self._used.pop(entry.node, None)

    def _share(self, amounts: resources.Amounts) -> resources.FrozenAmounts:
        """Return one object for equal amounts, to save memory."""
        if len(self._shared_amounts) >= _MAX_AMOUNTS:
            self._shared_amounts.clear()
        frozen = resources.freeze(amounts)
        return self._shared_amounts.setdefault(frozen, frozen)

    def _record_change(self, node: str) -> None:
        self._free.pop(node, None)
        self.change_log.record(node)
        self.version += 1

    def _add_usage(self, entry: PodInfo, *, sign: int) -> None:
        self._free.pop(entry.node, None)
        self.change_log.record(entry.node)
        used = self._used[entry.node]
        for name, amount in entry.requests.items():
            used[name] = used.get(name, 0) + sign * amount
