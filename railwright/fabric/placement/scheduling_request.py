"""A scheduling request: the pod, its gang and the candidate nodes.

The requests of Volcano and kube-scheduler are both translated into this type. Placement does not depend on the
protocol.
"""

import functools
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from railwright.fabric import intent, resources, views
from railwright.fabric.claims import claim_templates
from railwright.fabric.policy import compiled, model
from railwright.fabric.workloads import membership

_encode = msgspec.json.Encoder().encode


ResourceCounts = tuple[tuple[str, int], ...]
"""(resource, milli-units)."""


class Demand(msgspec.Struct, frozen=True):
    """The accelerators and rail devices that one pod needs."""

    accelerators: ResourceCounts
    pools: ResourceCounts  # resources of its rails

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the requested accelerators, then of the rails' resources."""
        return [name for name, _ in (*self.accelerators, *self.pools)]

    @property
    def rail_devices(self) -> int:
        """Return the number of rail devices that the pod needs."""
        return sum(amount for _, amount in self.pools) // resources.UNIT


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
    needs: tuple[intent.Need, ...]
    nodes: Sequence[str]  # each once
    policy: model.Policy
    uncounted_rails: tuple[str, ...] = ()  # rails of the pod without a resource
    segment: int = 1  # consecutive ranks that must share a leaf, which is their NVLink domain
    is_size_declared: bool = False  # by the pod's controller, though we may see the pod first; only read with segments
    is_filtered: bool = True  # candidate nodes match the pod's selector and affinity, as those of a scheduler do
    is_announced: bool = False  # the scheduler announces what it places, and scores nodes to preempt: Volcano
    is_confined: bool = False  # Volcano offers the gang, or its parts, the nodes of one HyperNode after the other
    is_single_pod: bool = False  # single-pod job, which fills partly used nodes first; known of a kind (`build_kind`)

    @functools.cached_property
    def domains(self) -> tuple[str, ...]:
        """Return the keys of the fabric's domains, closest first."""
        return compiled.list_domain_keys(self.fabric.placement)

    @functools.cached_property
    def offered(self) -> frozenset[str]:
        """Return the candidate nodes as a set."""
        return frozenset(self.nodes)

    @property
    def rails(self) -> frozenset[str]:
        """Return the rails that the pod needs, with or without a resource."""
        return frozenset(self.uncounted_rails).union(*[need.rails for need in self.needs])

    @property
    def has_claims_of_author(self) -> bool:
        """True if the pod names claims that its author wrote, which may tolerate tainted devices."""
        claims = self.spec.resource_claims or ()
        return any(claim_templates.read_gpu_count(claim.resource_claim_template_name or "") is None for claim in claims)

    @functools.cached_property
    def has_segment(self) -> bool:
        """True if the pod must share an NVLink domain with other ranks. Launchers, which take no devices, need not."""
        return self.segment > 1 and bool(self.gang) and not self.devices.isdisjoint(self.requests)

    @property
    def devices(self) -> frozenset[str]:
        """Return the accelerators of the policy, and the resources of the rails that the pod needs."""
        return frozenset((*self.policy.document.accelerators, *(need.resource for need in self.needs)))

    # --- what nodes are evaluated for ---------------------------------------------------------------------------

    def build_kind(self, requests: resources.FrozenAmounts, *, is_single_pod: bool) -> "SchedulingRequest":
        """Return a request without nodes that stands for all pods of the gang with these requests."""
        needs = self.needs if requests == self.requests else intent.find_requested_devices(requests, self.fabric.rails)
        return msgspec.structs.replace(self, requests=requests, needs=needs, nodes=(), is_single_pod=is_single_pod)

    @property
    def signature(self) -> Hashable:
        """Return a key of what the evaluation of nodes reads. Pods with equal keys share the evaluation."""
        spec, policy = self.spec, (self.policy.digest, self.fabric_name, self.fabric.rails)
        constraints = _encode((spec.node_selector, spec.affinity, spec.tolerations))
        requests = tuple(sorted(self.requests.items()))
        return *policy, self.uncounted_rails, self.needs, requests, constraints, self.is_single_pod

    @functools.cached_property
    def demand(self) -> Demand:
        """Return the devices that the pod needs, requested or not."""
        listed = self.policy.document.accelerators
        accelerators = [(name, self.requests[name]) for name in listed if self.requests.get(name, 0) > 0]
        return Demand(tuple(accelerators), pools=tuple((need.resource, need.amount) for need in self.needs))

    @functools.cached_property
    def unrequested(self) -> Mapping[str, int]:
        """Return the resources of rails that the pod needs and does not request, with the needed amounts."""
        return {need.resource: need.amount for need in self.needs if not self.requests.get(need.resource, 0)}

    def count_at_one_pod_per_nic(self, need: intent.Need) -> int:
        """Return how many devices of a pool, in milli-units, are in use if each NIC has one pod."""
        nics = sum(1 for rail in self.fabric.rails if rail.resource == need.resource) or 1
        return self.fabric.count_devices(nics) * resources.UNIT

    def count_uplinks_per_rail(self) -> float:
        """Return the number of uplinks available to each rail that the pod uses.

        If all rails of a node share the uplinks of one switch, a pod that uses four of eight rails has two uplinks for
        each. If each rail has separate uplinks, it has one.
        """
        rails = len(self.fabric.rails)
        used = sum(self.fabric.count_rails(-(-need.amount // resources.UNIT), len(need.rails)) for need in self.needs)
        is_shared = not compiled.has_own_uplinks(self.fabric.placement)
        return rails / used if is_shared and 0 < used < rails else 1.0


def build_request(  # noqa: PLR0913 - one argument for each fact of the protocol
    pod: views.Pod,
    policy: model.Policy | None,
    networks: intent.Networks,
    nodes: Sequence[str],
    *,
    requests: resources.FrozenAmounts,
    volcano_job: str = "",
    uid: str = "",
    is_announced: bool = False,
) -> SchedulingRequest | None:
    """Build the request for a pod. Return None without a policy or opt-in; then all nodes score 0.

    A node that is named twice counts once.
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
        needs=needs,
        nodes=nodes,
        policy=policy,
        uncounted_rails=intent.find_rails_without_resource(pod, fabric),
        segment=segment,
        is_size_declared=segment > 1 and membership.has_controller_with_size(pod),
        is_announced=is_announced,
    )
    if len(request.offered) < len(nodes):
        return msgspec.structs.replace(request, nodes=tuple(dict.fromkeys(nodes)))
    return request
