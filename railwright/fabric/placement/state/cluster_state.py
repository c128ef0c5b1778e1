"""The cached cluster state: nodes, the pods on them, the gangs of these pods, and the domains of nodes.

Updated by events (replace, upsert and remove of nodes, HyperNodes, pods and objects that declare gang sizes), which may
arrive in any order and repeatedly. Assumed pods are not part of it. A pod uses its node's resources from binding until
it has ended or is deleted, also while it terminates (rows 46 and 47 of tests/data/faults.yaml).
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import bounded_cache, hypernodes, node_views, resources, topology, views
from railwright.fabric.claims import claim_index, device_pairs, inventory, resource_names
from railwright.fabric.claims import objects as claims
from railwright.fabric.placement.state import (
    change_log,
    claimed_devices,
    declared_sizes,
    object_info,
    rail_health,
    rail_reports,
)
from railwright.fabric.workloads import frameworks, membership


class PodIndex:
    """Pods that have not ended. Nodes and gangs without pods have no entry, so that deleted ones leave nothing."""

    def __init__(self) -> None:
        self.by_uid: dict[str, object_info.PodInfo] = {}
        self.by_node: dict[str, dict[str, object_info.PodInfo]] = defaultdict(dict)  # bound pods
        # not terminating ones
        self.by_gang: dict[membership.GangKey, dict[str, object_info.PodInfo]] = defaultdict(dict)
        self.unbound_by_gang: dict[membership.GangKey, dict[str, object_info.PodInfo]] = defaultdict(dict)
        self.by_claim: dict[str, set[str]] = {}  # namespace/name of a claim that specs name -> UIDs
        self.by_template: dict[str, set[str]] = {}  # namespace/name of a ResourceClaimTemplate -> UIDs
        self.used_by_node: dict[str, dict[str, int]] = defaultdict(dict)
        self._numbers = itertools.count(1)
        self.gang_changes: dict[membership.GangKey, int] = {}  # number of the last change of a gang's pods

    def add(self, pod: object_info.PodInfo, *, joins_gang: bool) -> None:
        """Add a pod that is not indexed. A pod that does not join its gang is terminating, or has none."""
        self.by_uid[pod.uid] = pod
        if pod.claim_names or pod.templates:
            for index, key in self._list_claim_keys(pod):
                index.setdefault(key, set()).add(pod.uid)
        if joins_gang:
            self._add_to_gang(pod)
        if pod.node:
            self.by_node[pod.node][pod.uid] = pod
            self._add_usage(pod.node, pod.requests, sign=1)

    def remove(self, uid: str) -> object_info.PodInfo | None:
        """Remove a pod, and return it; None if it is unknown."""
        pod = self.by_uid.pop(uid, None)
        if pod is None:
            return None
        for index, key in self._list_claim_keys(pod):
            uids = index.get(key, set())
            uids.discard(uid)
            if not uids:
                index.pop(key, None)
        for gangs in (self.by_gang, self.unbound_by_gang):
            if pod.gang in gangs:
                gangs[pod.gang].pop(uid, None)
                if not gangs[pod.gang]:
                    del gangs[pod.gang]
        self.gang_changes.pop(pod.gang, None)
        if pod.gang in self.by_gang:
            self.gang_changes[pod.gang] = next(self._numbers)
        if pod.node:
            self._remove_from_node(pod)
        return pod

    def replace(self, pod: object_info.PodInfo) -> None:
        """Replace a pod by itself with other requests."""
        previous = self.by_uid[pod.uid]
        self.by_uid[pod.uid] = pod
        if pod.uid in self.by_gang.get(pod.gang, {}):
            self._add_to_gang(pod)
        if pod.node:
            self.by_node[pod.node][pod.uid] = pod
            self._add_usage(pod.node, previous.requests, sign=-1)
            self._add_usage(pod.node, pod.requests, sign=1)

    def _add_to_gang(self, pod: object_info.PodInfo) -> None:
        self.by_gang[pod.gang][pod.uid] = pod
        self.gang_changes[pod.gang] = next(self._numbers)
        if not pod.node:
            self.unbound_by_gang[pod.gang][pod.uid] = pod

    def _list_claim_keys(self, pod: object_info.PodInfo) -> list[tuple[dict[str, set[str]], str]]:
        """Return the entries of the indexes by claim and by template that have the pod."""
        by_claim = [(self.by_claim, key) for key in pod.claim_names]
        return by_claim + [(self.by_template, template.key) for template in pod.templates]

    def _remove_from_node(self, pod: object_info.PodInfo) -> None:
        self.by_node[pod.node].pop(pod.uid, None)
        self._add_usage(pod.node, pod.requests, sign=-1)
        if not self.by_node[pod.node]:
            self.by_node.pop(pod.node, None)
            self.used_by_node.pop(pod.node, None)

    def _add_usage(self, node: str, requests: resources.Amounts, *, sign: int) -> None:
        used = self.used_by_node[node]
        for name, amount in requests.items():
            used[name] = used.get(name, 0) + sign * amount


# --- the state ------------------------------------------------------------------------------------------------

_ENDED_PHASES = frozenset({"Succeeded", "Failed"})
_MAX_AMOUNTS = 4096  # distinct amounts of nodes and pods; the memory of nodes of one type may differ by bytes
_NO_NAMES: frozenset[str] = frozenset()
_NO_PREFLIGHTS: Mapping[str, rail_reports.NamedNics] = {}
_NO_PODS: Mapping[str, resources.Amounts] = {}
_NO_POD_INFOS: Mapping[str, object_info.PodInfo] = {}


class ClusterState:
    """Nodes with their domains, pods, and gang sizes, indexed for placement.

    `clock` returns seconds, for reports that rails do not work; they still count for a while after they have ended.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self.health = rail_health.RailHealth()
        self.health_policy = rail_reports.HealthPolicy()
        self._conditions: dict[str, tuple[rail_reports.NamedNics, ...]] = {}  # of nodes that have such
        self._preflights: dict[str, dict[str, rail_reports.NamedNics]] = {}  # node -> UID of a pod that reports rails
        self._ended_reporters: set[str] = set()  # UIDs of ended pods that have reported rails, which count once
        self._seen: dict[str, frozenset[str]] = {}  # node -> resources that it has had
        self._name_sets: dict[frozenset[str], frozenset[str]] = {}  # one object for equal sets
        self._nodes: dict[str, object_info.NodeInfo] = {}
        self._reported: dict[str, object_info.NodeInfo] = {}  # without the devices of slices
        self.claimed = claimed_devices.ClaimedDevices()
        self._pods = PodIndex()
        self._names_version = 0  # of the inventory, for which the requests of pods were computed
        self._claimable: dict[str, frozenset[str]] = {}  # resources that nodes have by slices only
        # of nodes; computed on demand, invalidated by changes
        self._free: dict[str, resources.FrozenAmounts] = {}
        self._unallocated: dict[str, Mapping[str, resources.Amounts]] = {}
        self._topologies: dict[str, node_views.NodeResourceTopology] = {}
        self._amounts: dict[resources.FrozenAmounts, resources.FrozenAmounts] = {}  # one object for equal amounts
        self._requests = resources.RequestReader(self._share)
        self._names: list[str] = []  # copies of those of the nodes, at the latest call of `list_names`
        self._interner = bounded_cache.StringInterner()
        self._sizes = declared_sizes.Sizes()
        self._tree = hypernodes.Tree()
        self.version = 0  # incremented by every change
        self.topology_version = 0  # incremented by changes of nodes and topology, which are rarer than those of pods
        self.change_log = change_log.ChangeLog()

    # --- reading --------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, object_info.NodeInfo]:
        """Return all nodes by name."""
        return self._nodes

    def list_names(self) -> Sequence[str]:
        """Return the names of all nodes, as texts that are near each other in memory.

        Keys of a map that is read for thousands of names are taken from here: a look-up compares its key, and waits for
        memory if the key is among the other fields of an object.
        """
        names = list(self._nodes)
        if names != self._names:
            self._names = [name.encode().decode() for name in names]
        return self._names

    @property
    def pods(self) -> Mapping[str, object_info.PodInfo]:
        """Return all pods that have not ended, by UID."""
        return self._pods.by_uid

    def get_used(self, node: str) -> resources.Amounts:
        """Return the requests of all pods bound to a node. Devices of slices are counted by their claims."""
        used = self._pods.used_by_node.get(node, {})
        names = self.list_claimable(node)
        if not names:
            return used
        return {**used, **self.claimed.count_used(node, names, self.list_unallocated(node).values())}

    @property
    def has_slices(self) -> bool:
        """True if devices come by ResourceSlices somewhere in the cluster."""
        return self.claimed.inventory.has_devices

    def list_claimable(self, node: str) -> frozenset[str]:
        """Return the resources that a node has by ResourceSlices and not by a device plugin."""
        return self._claimable.get(node, _NO_NAMES)

    def list_unallocated(self, node: str) -> Mapping[str, resources.Amounts]:
        """Return by UID the requests of pods bound to a node for devices of slices that no claim holds for them yet."""
        unallocated = self._unallocated.get(node)
        if unallocated is None:
            unallocated = self.claimed.list_unallocated(self.list_claimable(node), self.list_pods_on(node))
            self._unallocated[node] = unallocated = unallocated or _NO_PODS
        return unallocated

    def compute_requests(self, pod: views.Pod, container_requests: resources.Amounts) -> resources.FrozenAmounts:
        """Return the requests of a pod: those of its containers, and the devices that its claims request.

        They are the object of a known pod if one has equal requests. What a caller sends is not kept.
        """
        requests = self.claimed.add_requests(claim_index.identify_claims(pod), resources.freeze(container_requests))
        return self._amounts.get(requests, requests)

    def read_pairs(self, pod: claim_index.PodKey) -> device_pairs.PairDemand:
        """Return which devices of a pod's claims must be beside each other."""
        return self.claimed.inventory.read_pairs(pod)

    def get_free(self, node: str) -> resources.FrozenAmounts:
        """Return a node's allocatable minus the requests of its bound pods; negative if overcommitted."""
        free = self._free.get(node)
        if free is None:
            free = self._nodes[node].allocatable
            if used := self.get_used(node):
                free = self._share({**free, **{name: free.get(name, 0) - amount for name, amount in used.items()}})
            self._free[node] = free
        return free

    def find_free(self, nodes: Iterable[str]) -> list[resources.FrozenAmounts | None]:
        """Return what is free on each of these nodes; None for one that is not known."""
        known = self._free.get
        return [known(node) or (self.get_free(node) if node in self._nodes else None) for node in nodes]

    def list_pods_on(self, node: str) -> Iterator[object_info.PodInfo]:
        """Return the pods bound to a node."""
        return iter(self._pods.by_node.get(node, {}).values())

    def get_pods_on(self, node: str) -> Mapping[str, object_info.PodInfo]:
        """Return the pods bound to a node by UID."""
        return self._pods.by_node.get(node, _NO_POD_INFOS)

    def list_below(self, node: str, priority: int) -> frozenset[str]:
        """Return the UIDs of the pods bound to a node whose priority is lower."""
        return frozenset([pod.uid for pod in self.list_pods_on(node) if pod.priority < priority])

    def get_gang(self, key: membership.GangKey) -> Mapping[str, object_info.PodInfo]:
        """Return the existing pods of a gang by UID, bound or not, without terminating ones."""
        return self._pods.by_gang.get(key, {}) if key else {}

    def get_unbound(self, key: membership.GangKey) -> Mapping[str, object_info.PodInfo]:
        """Return those pods of a gang that are not bound."""
        return self._pods.unbound_by_gang.get(key, _NO_POD_INFOS) if key else _NO_POD_INFOS

    def get_gang_change(self, key: membership.GangKey) -> int:
        """Return the number of the last change of a gang's pods, which is that of no other change; 0 without pods."""
        return self._pods.gang_changes.get(key, 0)

    def get_gang_size(self, key: membership.GangKey, *, observed: int) -> int:
        """Return the gang size: the larger of the declared size and the number of pods observed."""
        return max(self.get_declared_size(key), observed, 1)

    def get_declared_size(self, key: membership.GangKey) -> int:
        """Return the gang size that an object declares, 0 if none is known to."""
        return self._sizes.get_declared(key)

    def has_min_count(self, key: membership.GangKey) -> bool:
        """True if a PodGroup of Kubernetes says how many pods of the gang start together: all of these or none."""
        return self._sizes.has_min_count(key)

    def is_confined(self, key: membership.GangKey) -> bool:
        """True if Volcano offers this gang the nodes of one HyperNode at a time."""
        return self._sizes.is_confined(key)

    def locate(self, node: object_info.NodeInfo, domains: tuple[str, ...], rails: Sequence[str] = ()) -> topology.Place:
        """Return the node's value of each domain key, lowest level first; "" if it has none.

        `rails` are the names of the fabric's rails, for keys with the placeholder topology.RAIL.
        """
        labels = node.labels
        if hypernodes.are_among(domains):
            labels = {**labels, **self._tree.read_values(node.name, labels)}
        return topology.read_domains(labels, domains, rails)

    def find_hyper_node_problems(self) -> Sequence[str]:
        """Return one message for each problem of the HyperNodes that was ignored."""
        return self._tree.find_problems({node.name: node.labels for node in self._nodes.values()})

    def get_topology_report(self, node: str) -> node_views.NodeResourceTopology | None:
        """Return the NodeResourceTopology of a node, or None if no exporter writes one."""
        return self._topologies.get(node)

    # --- events ---------------------------------------------------------------------------------------

    def upsert_node(self, node: node_views.Node) -> None:
        """Add or update a node."""
        info = object_info.read_node(node, self._interner, self._share)
        conditions = rail_reports.read_conditions(node)
        has_new_conditions = conditions != self._conditions.get(info.name, ())
        if has_new_conditions and conditions:
            self._conditions[info.name] = conditions
        elif has_new_conditions:
            del self._conditions[info.name]
        if info != self._reported.get(info.name):  # most updates are heartbeats, which must not invalidate plans
            self._reported[info.name] = info
            self._complete_nodes([info.name])
            self._update_renamed_requests()
        elif has_new_conditions:
            self._observe_health([info.name])

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay until they are removed."""
        self._nodes.pop(name, None)
        self._reported.pop(name, None)
        self._claimable.pop(name, None)
        self._conditions.pop(name, None)
        self._seen.pop(name, None)
        self.health.remove(name)
        self._tree.forget(name)
        self.topology_version += 1
        self._record_change(name)

    def upsert_pod(self, pod: views.Pod) -> None:
        """Add or update a pod; a pod that has ended is removed."""
        claims = claim_index.identify_claims(pod)
        uid = claims.uid
        report = rail_reports.read_preflight(pod) if uid not in self._ended_reporters else None
        self._set_preflight(pod.spec.node_name, uid, report)
        if pod.status.phase in _ENDED_PHASES:
            self._set_preflight(pod.spec.node_name, uid, None)  # after it was set: the report counts for its hold
            has_reported = report is not None or uid in self._ended_reporters
            self.remove_pod(uid)
            if has_reported:
                self._ended_reporters.add(uid)
            return
        container_requests = self._requests.compute(pod.spec)
        requests = self._add_claims(claims, container_requests)
        info = object_info.read_pod(pod, claims, self._interner, requests, container_requests)
        joins_gang = bool(info.gang) and not pod.metadata.deletion_timestamp  # a terminating pod will be replaced
        size = membership.read_annotation(pod) if joins_gang else 0
        if not size and info == self._pods.by_uid.get(uid) and joins_gang == (uid in self.get_gang(info.gang)):
            return  # only fields changed that placement does not use
        self._drop_pod(uid)
        self._pods.add(info, joins_gang=joins_gang)
        if size:
            self._sizes.set_report(membership.PODS, info.gang, {info.gang: size})
        self._record_pod_change(info)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        if (info := self._pods.by_uid.get(uid)) is not None:
            self._set_preflight(info.node, uid, None)
        self._ended_reporters.discard(uid)
        self._drop_pod(uid)
        self.version += 1

    def change_devices(self, change: Callable[[inventory.Inventory], set[str]]) -> None:
        """Change slices, device classes, taint rules or the policy's names, and update the nodes that `change` returns.

        Requests of claims may then count under other names.
        """
        known = self.claimed.inventory
        shared = known.count_shared_devices()
        self._update_claims(change(known), ())
        if known.count_shared_devices() != shared:
            self._record_change_of_all()

    def upsert_claim(self, claim: claims.ResourceClaim) -> AbstractSet[str]:
        """Add or update a ResourceClaim. Returns the UIDs of the pods that use it or did."""
        uids = self.claimed.inventory.claims.list_consumers(claim) | claim.consumers | self._list_pods_naming(claim)
        self._update_claims(self.claimed.inventory.claim_sink.upsert(claim), uids)
        return uids

    def remove_claim(self, claim: claims.ResourceClaim) -> AbstractSet[str]:
        """Remove a ResourceClaim. Returns the UIDs of the pods that used it."""
        uids = self.claimed.inventory.claims.list_consumers(claim) | self._list_pods_naming(claim)
        self._update_claims(self.claimed.inventory.claim_sink.remove(claim), uids)
        return uids

    def replace_claims(self, listed: Sequence[claims.ResourceClaim]) -> None:
        """Replace all ResourceClaims."""
        self._update_claims(self.claimed.inventory.claim_sink.replace(listed), self._pods.by_uid)

    def change_templates(self, change: Callable[[inventory.Inventory], set[str]]) -> AbstractSet[str]:
        """Change ResourceClaimTemplates, and update the pods that name those which `change` returns.

        Returns the UIDs of these pods.
        """
        keys = change(self.claimed.inventory)
        uids = set[str]().union(*(self._pods.by_template.get(key, ()) for key in keys))
        self._update_claims((), uids)
        return uids

    def upsert_size(self, kind: frameworks.SizeKind, obj: declared_sizes.SizedObject) -> None:
        """Add or update an object that declares a gang size. Most updates change only its status."""
        self.version += self._sizes.upsert(kind, obj)

    def remove_size(self, kind: frameworks.SizeKind, obj: declared_sizes.SizedObject) -> None:
        """Remove an object that declares a gang size."""
        self.version += self._sizes.remove(kind, obj.metadata.full_name)

    def replace_sizes(self, kind: frameworks.SizeKind, objects: Sequence[declared_sizes.SizedObject]) -> None:
        """Replace all objects of a kind that declares gang sizes."""
        self.version += self._sizes.replace(kind, objects)

    def upsert_hyper_node(self, obj: hypernodes.HyperNode) -> None:
        """Add or update a HyperNode."""
        if self._tree.upsert(obj):
            self._record_change_of_all()

    def remove_hyper_node(self, obj: hypernodes.HyperNode) -> None:
        """Remove a HyperNode."""
        if self._tree.remove(obj):
            self._record_change_of_all()

    def replace_hyper_nodes(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """Replace all HyperNodes."""
        if self._tree.replace(objects):
            self._record_change_of_all()

    def apply_health_policy(
        self, policy: rail_reports.HealthPolicy, named: Sequence[resource_names.ClaimResource] | None = None
    ) -> None:
        """Read all reports about rails again if the policy has changed what follows from them.

        `named` are the names by which it counts devices of claims; None: as before. Both change before a report is
        read: devices that only one of two policies names would be missing.
        """
        has_changed = policy.key != self.health_policy.key
        if has_changed:
            self.health_policy = policy
        if named is not None:
            self.change_devices(lambda devices: devices.replace_claim_resources(named))
        if has_changed:
            self._observe_health(self._nodes)

    def expire_reports(self) -> None:
        """Update the nodes of which reports no longer count. Call it about once a second."""
        for name in self.health.expire(self.health_policy, self._clock()):
            self._record_change(name)

    def upsert_topology(self, report: node_views.NodeResourceTopology) -> None:
        """Add or update a NodeResourceTopology, which has the name of its node."""
        if report != self._topologies.get(report.metadata.name):  # exporters write periodically, changed or not
            self._topologies[report.metadata.name] = report
            self._record_change(report.metadata.name)

    def remove_topology(self, name: str) -> None:
        """Remove a NodeResourceTopology."""
        self._topologies.pop(name, None)
        self._record_change(name)

    def replace_topologies(self, reports: Sequence[node_views.NodeResourceTopology]) -> None:
        """Replace all NodeResourceTopologies."""
        for name in self._topologies.keys() - {report.metadata.name for report in reports}:
            self.remove_topology(name)
        for report in reports:
            self.upsert_topology(report)

    def replace_nodes(self, nodes: Sequence[node_views.Node]) -> None:
        """Replace all nodes."""
        gone = self._nodes.keys() - {node.metadata.name for node in nodes}
        for name in gone:
            self.remove_node(name)
        for node in nodes:
            self.upsert_node(node)

    def replace_pods(self, pods: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        known = self._pods.by_uid.keys() | self._ended_reporters
        for uid in known - {pod.metadata.identity for pod in pods}:
            self.remove_pod(uid)
        for pod in pods:
            self.upsert_pod(pod)

    def _share(self, amounts: resources.Amounts) -> resources.FrozenAmounts:
        """Return the first object that equals `amounts`: nodes of one type, and pods of one gang, have the same."""
        if len(self._amounts) >= _MAX_AMOUNTS:
            self._amounts.clear()  # existing references stay valid
        frozen = resources.freeze(amounts)
        return self._amounts.setdefault(frozen, frozen)

    def _complete_nodes(self, changed: Collection[str]) -> None:
        """Add the devices of slices to these nodes as kubelet reported them. Every change of devices ends here."""
        for name in changed:
            reported = self._reported.get(name)
            if reported is not None:
                self._claimable[name] = self.claimed.list_names(name, reported.allocatable)
                amounts = claimed_devices.NodeAmounts(reported.allocatable, reported.capacity)
                allocatable, capacity = map(self._share, self.claimed.complete(name, amounts))
                node = msgspec.structs.replace(reported, allocatable=allocatable, capacity=capacity)
                if node != self._nodes.get(name):
                    self._nodes[name] = node
                    self.topology_version += 1
            self._record_change(name)
        self._observe_health(changed)

    def _observe_health(self, nodes: Iterable[str]) -> None:
        """Read the reports about rails of these nodes."""
        now = self._clock()
        for name in nodes:
            node = self._nodes.get(name)
            if node is None:
                continue
            had = self._seen.get(name, _NO_NAMES)
            seen = had.union([resource for resource, amount in node.capacity.items() if amount])
            if len(seen) > len(had):
                if len(self._name_sets) >= _MAX_AMOUNTS:
                    self._name_sets.clear()  # existing references stay valid
                self._seen[name] = self._name_sets.setdefault(seen, seen)
            named = (*self._conditions.get(name, ()), *self._preflights.get(name, _NO_PREFLIGHTS).values())
            observed = rail_reports.Observation(node, named, self.claimed.inventory, seen)
            reports = rail_reports.read(self.health_policy, observed)
            if self.health.observe(name, reports, self.health_policy, now):
                self._record_change(name)

    def _update_renamed_requests(self) -> None:
        """Update the requests of claims, if devices of a new kind may have changed for which rails they are."""
        known = self.claimed.inventory
        if known.names.version != self._names_version:
            self._names_version = known.names.version
            pods = self._pods.by_uid.values()
            self._update_pods([pod for pod in pods if pod.templates or known.claims.list_claims(pod.claims)])

    def _list_pods_naming(self, claim: claims.ResourceClaim) -> AbstractSet[str]:
        """Return the UIDs of the pods whose spec names a claim; it may not be reserved for them yet."""
        return self._pods.by_claim.get(claim.metadata.full_name, frozenset())

    def _update_claims(self, nodes: Collection[str], pods: Iterable[str]) -> None:
        """Update nodes whose devices changed, were taken or returned, and the requests of these pods."""
        self._complete_nodes(nodes)
        self._update_pods([self._pods.by_uid[uid] for uid in pods if uid in self._pods.by_uid])
        self._update_renamed_requests()
        self.version += 1

    def _update_pods(self, pods: Iterable[object_info.PodInfo]) -> None:
        """Compute again what the claims of these pods request."""
        for previous in pods:
            requests = self._add_claims(previous.claims, previous.container_requests)
            if requests != previous.requests:
                self._pods.replace(msgspec.structs.replace(previous, requests=requests))
            self._record_pod_change(previous)

    def _add_claims(
        self, claims: claim_index.PodKey, container_requests: resources.FrozenAmounts
    ) -> resources.FrozenAmounts:
        """Return the requests of a pod: those of its containers and of its claims."""
        requests = self.claimed.add_requests(claims, container_requests)
        return requests if requests is container_requests else self._share(requests)

    def _record_change_of_all(self) -> None:
        """Record that the topology of any node may have changed."""
        self.change_log.record_all()
        self.topology_version += 1
        self.version += 1

    def _set_preflight(self, node: str, uid: str, report: rail_reports.NamedNics | None) -> None:
        """Set what the preflight of a pod reports of the rails of its node; None: nothing, or no longer."""
        known = self._preflights.get(node, {})
        if known.get(uid) == report:
            return
        if report is not None:
            self._preflights.setdefault(node, {})[uid] = report
        else:
            del known[uid]
            if not known:
                del self._preflights[node]
        self._observe_health([node])

    def _drop_pod(self, uid: str) -> None:
        info = self._pods.remove(uid)
        if info is None:
            return
        if info.gang and info.gang not in self._pods.by_gang:
            self._sizes.set_report(membership.PODS, info.gang, {})
        self._record_pod_change(info)

    def _record_pod_change(self, pod: object_info.PodInfo) -> None:
        """Record a change of a pod, and of the node whose resources it uses."""
        if pod.node:
            self._record_change(pod.node)
        self.version += 1

    def _record_change(self, node: str) -> None:
        self._free.pop(node, None)
        self._unallocated.pop(node, None)
        self.change_log.record(node)
        self.version += 1


# --- its domains ----------------------------------------------------------------------------------------------


class DomainIndex:
    """The leaves of all nodes."""

    def __init__(self, cluster: ClusterState, domains: tuple[str, ...], rails: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._domains = domains
        self._rails = rails
        self._position = -1
        self._domain_sizes: dict[topology.Domain, int] | None = None
        self.leaf_by_node: dict[str, topology.Domain] = {}
        self.nodes_by_leaf: dict[topology.Domain, dict[str, None]] = {}  # leaf -> its nodes
        self._shared: dict[topology.Domain, topology.Domain] = {}  # one object for equal leaves, found faster as a key

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        changed = self._cluster.change_log.read_since(self._position)
        self._position = self._cluster.change_log.position
        if changed is None:
            self.leaf_by_node.clear()
            self.nodes_by_leaf.clear()
            self._shared.clear()
            self._domain_sizes = None
            changed = self._cluster.list_names()
        for name in changed:
            self._update_node(name)

    def _update_node(self, name: str) -> None:
        node = self._cluster.nodes.get(name)
        leaf = None if node is None else topology.get_domain(self._cluster.locate(node, self._domains, self._rails))
        old = self.leaf_by_node.get(name)
        if old == leaf:
            return
        self._domain_sizes = None
        if old is not None:
            del self.leaf_by_node[name], self.nodes_by_leaf[old][name]
            if not self.nodes_by_leaf[old]:
                del self.nodes_by_leaf[old], self._shared[old]
        if leaf is not None:
            leaf = self.leaf_by_node[name] = self._shared.setdefault(leaf, leaf)
            self.nodes_by_leaf.setdefault(leaf, {})[name] = None

    @property
    def domain_sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        if self._domain_sizes is None:
            self._domain_sizes = {}
            for leaf, names in self.nodes_by_leaf.items():
                for level in range(len(leaf)):
                    self._domain_sizes[leaf[level:]] = self._domain_sizes.get(leaf[level:], 0) + len(names)
        return self._domain_sizes
