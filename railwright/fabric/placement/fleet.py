"""The nodes, what runs on them and which gangs those pods form: the state every placement is decided on.

A reducer fed by events (replace, upsert and remove of nodes, HyperNodes, pods and what tells a gang's size, in any
order and any number of times) and read by decisions; it holds no clock and no tentative allocation (that is the
ledger's). A pod counts against its node from binding until it is gone or has ended, also while it terminates (faults
46 and 47).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import hypernodes, resources, topology, views, words, workload
from railwright.fabric.placement import journal, kubelet, numa, rails, size_kinds, sizes
from railwright.fabric.policy import model


class FleetNode(msgspec.Struct, gc=False, frozen=True):
    """A node as placement sees it."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: resources.Amounts
    capacity: resources.Amounts
    taints: tuple[views.Taint, ...]
    schedulable: bool  # Ready and not cordoned


class FleetPod(msgspec.Struct, gc=False, frozen=True):
    """A pod as placement sees it."""

    uid: str
    key: str  # namespace/name, as shown to people; one text however many explanations hold it
    node: str  # "" until bound
    gang: workload.GangKey
    rank: workload.Rank
    requests: resources.Amounts
    bound_at: str = ""  # RFC 3339 in seconds, by the API server's clock; "" until bound or where not told
    policy: str = ""  # digest of the policy it was admitted under; "" where it was not injected


_KEPT_AMOUNTS = (
    4096  # different amounts; a cluster has a few types of nodes, whose memory may differ by bytes, and pods
)
_KEPT_SHAPES = 4096  # likewise, by shape
_ENDED = frozenset({"Succeeded", "Failed"})


class Fleet:
    """Nodes, their domains, pods and the sizes of gangs, indexed for placement."""

    def __init__(self) -> None:
        self._nodes: dict[str, FleetNode] = {}
        self._pods: dict[str, FleetPod] = {}
        self._on_node: dict[str, dict[str, FleetPod]] = defaultdict(dict)
        self._used: dict[str, dict[str, int]] = defaultdict(dict)
        self._gangs: dict[workload.GangKey, dict[str, FleetPod]] = defaultdict(dict)
        self._free: dict[str, resources.Amounts] = {}  # worked out when asked for, until something changes
        self._topologies: dict[str, views.NodeResourceTopology] = {}
        self._amounts: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}  # nodes of one type share theirs
        self._shaped: dict[
            tuple[int, int, int], tuple[model.NodeShape, resources.Amounts, Sequence[model.Rail], numa.Zones]
        ] = {}
        self._words = words.Words()
        self._sizes = sizes.Sizes()
        self._tree = hypernodes.Tree()
        self.generation = 0  # grows with every change: what was planned on an older one may be planned anew
        self.layout = 0  # grows when a node, or where nodes are, changes: seldom, where pods come and go all the time
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
            found = self._nodes[node].allocatable
            if used := self._used.get(node):
                found = self._shared({**found, **{name: found.get(name, 0) - amount for name, amount in used.items()}})
            self._free[node] = found
        return found

    def on_node(self, node: str) -> Iterator[FleetPod]:
        """The pods bound to a node."""
        return iter(self._on_node.get(node, {}).values())

    def gang(self, key: workload.GangKey) -> Mapping[str, FleetPod]:
        """The pods of a gang seen so far, bound or not, by uid; without those on their way out."""
        return self._gangs.get(key, {}) if key else {}

    def gang_size(self, key: workload.GangKey, *, seen: int) -> int:
        """Pods the gang has: what is told of it or the pods seen, whichever is more (ruling 19; jobs are elastic)."""
        return max(self._sizes.least(key), seen, 1)

    def place(self, node: FleetNode, domains: tuple[str, ...], rails: Sequence[str] = ()) -> topology.Place:
        """Where a node is: the value of each domain key, closest first, "" where it has none.

        `rails` are the names of the fabric's rails, for keys with the placeholder of topology.RAIL.
        """
        labels = node.labels
        if hypernodes.are_among(domains):
            labels = {**labels, **self._tree.values(node.name, labels)}
        return topology.place_of(labels, domains, rails)

    def hyper_node_problems(self) -> Sequence[str]:
        """What is wrong with the HyperNodes and was read over, a sentence each."""
        return self._tree.problems({node.name: node.labels for node in self._nodes.values()})

    def reported(self, node: str) -> views.NodeResourceTopology | None:
        """What kubelet reports of a node's NUMA nodes, where an exporter writes it down."""
        return self._topologies.get(node)

    def zones(  # noqa: PLR0913 - one argument a fact
        self,
        node: FleetNode,
        shape: model.NodeShape | None,
        rails: Sequence[model.Rail],
        accelerators: Sequence[str],
        others: Iterable[resources.Amounts] = (),
        *,
        without: str = "",
    ) -> numa.Zones:
        """What is free on each NUMA node (ruling 22); () where nothing is known of them.

        As kubelet reports it, if it knows of the last binding on the node; else what the shape says, else all that
        kubelet reports, without what is bound. `others` (announced allocations) are charged in any case. Resources
        that kubelet does not report are taken from the shape. What the pod `without` (a uid) holds counts as free.
        """
        names = {*accelerators, *(rail.resource for rail in rails if rail.resource)}
        held = [pod for pod in self.on_node(node.name) if pod.uid != without and not names.isdisjoint(pod.requests)]
        taken = [*(pod.requests for pod in held), *others]
        shaped = self.shaped(node, shape, rails, accelerators) if shape else ()
        found = self._topologies.get(node.name)
        if found is None:
            return numa.charged(shaped, taken)
        if not kubelet.knows(found, [(pod.bound_at, pod.requests) for pod in held], names):
            return numa.charged(shaped or numa.whole(found, names), taken)
        reported = numa.charged(numa.of_topology(found, names), taken[len(held) :])
        return numa.completed(reported, numa.charged(shaped, taken)) if shaped else reported

    def is_reported_exactly(self, node: str, names: Collection[str]) -> bool:
        """Whether kubelet's report tells where the devices of these names are that bound pods hold, and only theirs."""
        found = self._topologies.get(node)
        held = [
            (pod.bound_at, pod.requests) for pod in self.on_node(node) if any(name in pod.requests for name in names)
        ]
        return found is not None and kubelet.tells_all(found, held, names)

    def shaped(
        self, node: FleetNode, shape: model.NodeShape, rails: Sequence[model.Rail], accelerators: Sequence[str]
    ) -> numa.Zones:
        """All that a node of this shape has; the same for all nodes of one shape with the same allocatable."""
        key = (id(shape), id(node.allocatable), id(rails))
        kept = self._shaped.get(key)
        if kept is not None and kept[0] is shape and kept[1] is node.allocatable and kept[2] is rails:
            return kept[3]
        if len(self._shaped) >= _KEPT_SHAPES:
            self._shaped.clear()
        found = numa.of_shape(shape, rails, node.allocatable, accelerators)
        self._shaped[key] = (shape, node.allocatable, rails, found)
        return found

    # --- what events write ----------------------------------------------------------------------------

    def upsert_node(self, node: views.Node) -> None:
        """A node appeared or changed."""
        conditions = node.status.conditions or ()
        ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
        found = FleetNode(
            name=node.metadata.name,
            uid=node.metadata.uid,
            labels=self._words.all_of(node.metadata.labels),
            allocatable=self._shared(resources.amounts(node.status.allocatable)),
            capacity=self._shared(resources.amounts(node.status.capacity)),
            taints=tuple(node.spec.taints or ()),
            schedulable=ready and not node.spec.unschedulable,
        )
        if found != self._nodes.get(found.name):  # most changes are heartbeats, and plans hold through them
            self._nodes[found.name] = found
            self.layout += 1
            self._touched(found.name)

    def remove_node(self, name: str) -> None:
        """A node is gone; its pods stay known until they go themselves."""
        self._nodes.pop(name, None)
        self._tree.forget(name)
        self.layout += 1
        self._touched(name)

    def upsert_pod(self, pod: views.Pod) -> None:
        """A pod appeared, changed, was bound, or ended."""
        uid = pod.metadata.identity
        if pod.status.phase in _ENDED:
            self.remove_pod(uid)
            return
        entry = FleetPod(
            uid=uid,
            key=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=self._words.one(pod.spec.node_name),
            gang=workload.GangKey(self._words.one(workload.gang_of(pod))),
            rank=workload.rank_of(pod),
            requests=self._shared(resources.requests_of(pod.spec)),
            bound_at=pod.status.bound_at if pod.spec.node_name else "",
            policy=self._words.one(rails.policy_of(pod)),
        )
        joins = bool(entry.gang) and not pod.metadata.deletion_timestamp  # one on its way out is replaced, not joined
        size = sizes.told_by_pod(pod) if joins else 0
        if not size and entry == self._pods.get(uid) and joins == (uid in self.gang(entry.gang)):
            return  # its status changed, and nothing that a placement reads
        self._forget(uid)
        self._pods[uid] = entry
        if joins:
            self._gangs[entry.gang][uid] = entry
            if size:
                self._sizes.file(sizes.PODS, entry.gang, {entry.gang: size})
        if entry.node:
            self._on_node[entry.node][uid] = entry
            self._charge(entry, sign=1)
        self.generation += 1

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._forget(uid)
        self.generation += 1

    def upsert_pod_group(self, group: views.PodGroup) -> None:
        """A PodGroup of Volcano appeared or changed."""
        self.upsert_size(size_kinds.VOLCANO_POD_GROUPS, group)

    def upsert_size(self, kind: sizes.Kind, obj: sizes.Sized) -> None:
        """An object that tells a gang's size appeared or changed; most changes are of its status and tell nothing."""
        self.generation += self._sizes.put(kind, obj)

    def remove_size(self, kind: sizes.Kind, obj: sizes.Sized) -> None:
        """Such an object is gone."""
        self.generation += self._sizes.file(kind, sizes.holder_of(obj.metadata), {})

    def replace_sizes(self, kind: sizes.Kind, objects: Sequence[sizes.Sized]) -> None:
        """The full list of such a kind."""
        self.generation += self._sizes.replace(kind, objects)

    def upsert_hyper_node(self, obj: hypernodes.HyperNode) -> None:
        """A HyperNode appeared or changed."""
        if self._tree.upsert(obj):
            self._touched_all()

    def remove_hyper_node(self, name: str) -> None:
        """A HyperNode is gone."""
        if self._tree.remove(name):
            self._touched_all()

    def replace_hyper_nodes(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """The full list of HyperNodes."""
        if self._tree.replace(objects):
            self._touched_all()

    def upsert_topology(self, found: views.NodeResourceTopology) -> None:
        """A NodeResourceTopology appeared or changed; it has its node's name."""
        if found != self._topologies.get(found.metadata.name):  # exporters write on time, changed or not
            self._topologies[found.metadata.name] = found
            self._touched(found.metadata.name)

    def remove_topology(self, name: str) -> None:
        """A NodeResourceTopology is gone."""
        self._topologies.pop(name, None)
        self._touched(name)

    def replace_topologies(self, found: Sequence[views.NodeResourceTopology]) -> None:
        """The full list of NodeResourceTopologies."""
        for name in self._topologies.keys() - {each.metadata.name for each in found}:
            self.remove_topology(name)
        for each in found:
            self.upsert_topology(each)

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

    def _touched_all(self) -> None:
        """Any node's place may be another now."""
        self.journal.touch_all()
        self.layout += 1
        self.generation += 1

    def _forget(self, uid: str) -> None:
        entry = self._pods.pop(uid, None)
        if entry is None:
            return
        if entry.gang in self._gangs:
            mates = self._gangs[entry.gang]
            mates.pop(uid, None)
            if not mates:
                del self._gangs[entry.gang]
                self._sizes.file(sizes.PODS, entry.gang, {})
        if entry.node:
            self._on_node[entry.node].pop(uid, None)
            self._charge(entry, sign=-1)
            if not self._on_node[entry.node]:  # nodes come and go; their empty tables must not stay
                self._on_node.pop(entry.node, None)
                self._used.pop(entry.node, None)

    def _shared(self, amounts: dict[str, int]) -> dict[str, int]:
        """The same amounts, one object for all nodes and pods that have them."""
        if len(self._amounts) >= _KEPT_AMOUNTS:
            self._amounts.clear()
        return self._amounts.setdefault(tuple(amounts.items()), amounts)

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
