"""A scheduling request: the pod, its gang and the candidate nodes.

The requests of Volcano and kube-scheduler are both translated into this type. Placement does not depend on the
protocol.
"""

import functools
from collections.abc import Container, Mapping, Sequence

import msgspec

from railwright.fabric import intent, resources, views
from railwright.fabric.claims import device_pairs
from railwright.fabric.policy import model, presets
from railwright.fabric.workloads import membership, roles


class NodeOffer(msgspec.Struct, frozen=True, cache_hash=True):
    """The scheduler's own view of the free resources of a node, in its running session.

    All amounts exclude the resources of pods that other schedulers assumed; `used_elsewhere` has those.
    """

    idle: resources.FrozenAmounts  # Volcano: Idle
    # Volcano: FutureIdle, with resources of terminating pods; None if equal
    future_idle: resources.Amounts | None = None
    if_preempted: bool = False  # `idle` is what would be free after preempting the node's pods
    used_elsewhere: resources.FrozenAmounts = resources.NO_AMOUNTS


class Preemption(msgspec.Struct, frozen=True):
    """Which pods kube-scheduler may leave out of nodes that it offers to a pod of a PodGroup, or to a nominated pod.

    To find victims for a PodGroup it removes all pods of lower priority from its snapshot, and then asks extenders as
    always (1.37, pkg/scheduler/framework/preemption/podgrouppreemption.go). For a pod alone it asks none meanwhile. It
    offers the node once the victims are gone, which our watch may show later: if the pod is refused then, it evicts
    others. That need not be the nominated node, because a pod may have made room on two.
    """

    below: int  # priority of the pod; pods below it may be victims
    # Resources that kube-scheduler may leave to us (ignoredByScheduler): a shortage of these alone shows no simulation.
    uncounted: frozenset[str] = frozenset()
    bound_elsewhere: frozenset[str] = frozenset()  # nodes to which another scheduler has just bound a pod


class SchedulingRequest(msgspec.Struct, frozen=True, dict=True):
    """One pod to schedule, and its candidate nodes."""

    uid: str
    namespace: str
    name: str
    spec: views.PodSpec
    gang: membership.GangKey
    rank: membership.Rank
    requests: resources.FrozenAmounts
    fabric_name: str
    fabric: model.Fabric
    domains: tuple[str, ...]
    needs: tuple[intent.Need, ...]
    accelerators: tuple[str, ...]
    nodes: Sequence[str]  # each once
    shapes: tuple[model.NodeShape, ...] = ()
    policy: str = ""  # digest; cached evaluations of another policy are invalid
    part: str = ""  # of the gang, placed as a unit; "" for the whole gang
    uncounted_rails: tuple[str, ...] = ()  # rails of the pod without a resource
    pairs: device_pairs.PairDemand = device_pairs.NO_PAIRS  # devices that the pod's claims ask for beside each other
    # of rails that the pod's containers request, not its claims; only in requests of kube-scheduler
    container_rails: frozenset[str] = frozenset()
    segment: int = 1  # consecutive ranks that must share a leaf, which is their NVLink domain
    has_late_launcher: bool = False  # a launcher may be created after all other pods; only read with segments
    is_size_declared: bool = False  # by the pod's controller, though we may see the pod first; only read with segments
    offers: Mapping[str, NodeOffer] = {}  # by node; empty if the scheduler's protocol does not report free resources
    is_confined: bool = False  # Volcano offers the gang, or its parts, the nodes of one HyperNode after the other
    preemption: Preemption | None = None  # None if the scheduler offers nodes with all of their pods only

    @functools.cached_property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @functools.cached_property
    def offered(self) -> frozenset[str]:
        """Return the candidate nodes."""
        return frozenset(self.nodes)

    @functools.cached_property
    def has_domains_in_turn(self) -> bool:
        """True if the scheduler simulates a placement of the gang in one topology domain after the other.

        False for a gang with segments: our filter leaves each pod only some leaves of the domain, which do not show it.
        """
        return not self.must_stay_together and (self.is_confined or self.spec.scheduling_group is not None)

    @property
    def must_stay_together(self) -> bool:
        """True if pods of the gang must share a domain: those of a segment."""
        return self.segment > 1

    @property
    def devices(self) -> frozenset[str]:
        """Return the accelerators of the policy, and the resources of the rails that the pod needs."""
        return frozenset((*self.accelerators, *(need.resource for need in self.needs)))


def build_request(  # noqa: PLR0913 - one argument for each fact of the protocol
    pod: views.Pod,
    policy: model.Policy | None,
    networks: intent.Networks,
    nodes: Sequence[str],
    *,
    offers: Mapping[str, NodeOffer] | None = None,
    requests: resources.FrozenAmounts,
    of_containers: Container[str] = (),
    pairs: device_pairs.PairDemand = device_pairs.NO_PAIRS,
    volcano_job: str = "",
    uid: str = "",
) -> SchedulingRequest | None:
    """Build the request for a pod. Return None without a policy or opt-in; then all nodes score 0.

    A node that is named twice counts once. `of_containers` are the resources that the pod's containers request.
    """
    if policy is None:
        return None
    fabric_name, fabric = intent.find_fabric(pod, policy.document)
    if fabric is None:
        return None
    fabric = intent.fill_resources(fabric_name, fabric, networks)
    needs = intent.find_needs(pod, requests, fabric)
    segment = intent.find_segment(pod, fabric)
    request = SchedulingRequest(
        uid=uid or pod.metadata.identity,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        spec=pod.spec,
        gang=membership.find_gang(pod, volcano_job),
        rank=membership.find_rank(pod),
        requests=requests,
        fabric_name=fabric_name,
        fabric=fabric,
        domains=presets.list_domain_keys(fabric.placement),
        needs=needs,
        accelerators=policy.document.accelerators,
        nodes=nodes,
        shapes=policy.document.node_shapes,
        policy=policy.digest,
        part=membership.find_part(pod),
        uncounted_rails=intent.find_uncounted(pod, fabric),
        pairs=pairs,
        container_rails=frozenset([need.resource for need in needs if need.resource in of_containers]),
        segment=segment,
        has_late_launcher=segment > 1 and roles.has_late_launcher(pod),
        is_size_declared=segment > 1 and membership.has_controller_with_size(pod),
        offers=offers or {},
    )
    if len(request.offered) < len(nodes):
        return msgspec.structs.replace(request, nodes=tuple(dict.fromkeys(nodes)))
    return request


def repeat_request(  # noqa: PLR0913 - one argument for each fact
    earlier: SchedulingRequest,
    policy: model.Policy,
    networks: intent.Networks,
    offered: tuple[Sequence[str], frozenset[str]],
    *,
    requests: resources.FrozenAmounts,
    pairs: device_pairs.PairDemand,
) -> SchedulingRequest | None:
    """Return an earlier request of the same pod with other candidate nodes, each once, in order and as a set.

    None if what the request follows from has changed since.
    """
    document = policy.document
    if earlier.policy != policy.digest or earlier.fabric_name not in document.fabrics:
        return None
    fabric = intent.fill_resources(earlier.fabric_name, document.fabrics[earlier.fabric_name], networks)
    basis = (fabric, document.accelerators, document.node_shapes, requests, pairs)
    if (earlier.fabric, earlier.accelerators, earlier.shapes, earlier.requests, earlier.pairs) != basis:
        return None
    return restrict(earlier, *offered)


def restrict(request: SchedulingRequest, nodes: Sequence[str], offered: frozenset[str]) -> SchedulingRequest:
    """Return a request with these candidate nodes only, given in order and as a set."""
    restricted = msgspec.structs.replace(request, nodes=nodes)
    vars(restricted).update(vars(request), offered=offered)  # the cached properties
    return restricted


def trim_spec(spec: views.PodSpec) -> views.PodSpec:
    """Return a copy of the spec with scheduling fields only. Environment, commands and volumes may be megabytes."""
    return views.PodSpec(
        containers_or_none=[
            views.Container(name=container.name, resources=container.resources) for container in spec.containers
        ],
        init_containers=[
            views.Container(name=container.name, resources=container.resources, restart_policy=container.restart_policy)
            for container in spec.init_containers or ()
        ],
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        scheduling_group=spec.scheduling_group,
        workload_ref=spec.workload_ref,
        resources=spec.resources,
    )
