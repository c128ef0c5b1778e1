"""A scheduling request: the pod, its gang and the candidate nodes.

The requests of Volcano and kube-scheduler are both translated into this type. Placement does not depend on the
protocol.
"""

import functools
from collections.abc import Sequence

import msgspec

from railwright.fabric import intent, resources, views
from railwright.fabric.claims import claim_templates
from railwright.fabric.policy import model, presets
from railwright.fabric.workloads import membership, roles


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
    part: str = ""  # of the gang, placed as a unit; "" for the whole gang
    uncounted_rails: tuple[str, ...] = ()  # rails of the pod without a resource
    segment: int = 1  # consecutive ranks that must share a leaf, which is their NVLink domain
    has_late_launcher: bool = False  # a launcher may be created after all other pods; only read with segments
    is_size_declared: bool = False  # by the pod's controller, though we may see the pod first; only read with segments
    is_filtered: bool = True  # candidate nodes match the pod's selector and affinity, as those of a scheduler do
    is_announced: bool = False  # the scheduler announces what it places, and scores nodes to preempt: Volcano
    is_confined: bool = False  # Volcano offers the gang, or its parts, the nodes of one HyperNode after the other

    @functools.cached_property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Return the resource names of accelerators."""
        return self.policy.document.accelerators

    @functools.cached_property
    def domains(self) -> tuple[str, ...]:
        """Return the keys of the fabric's domains, closest first."""
        return presets.list_domain_keys(self.fabric.placement)

    @functools.cached_property
    def offered(self) -> frozenset[str]:
        """Return the candidate nodes."""
        return frozenset(self.nodes)

    @property
    def rails(self) -> frozenset[str]:
        """Return the rails that the pod needs, with or without a resource."""
        return frozenset(self.uncounted_rails).union(*[need.rails for need in self.needs])

    @property
    def has_claims_of_author(self) -> bool:
        """True if the pod names claims that its author wrote. These may tolerate tainted devices."""
        claims = self.spec.resource_claims or ()
        return any(
            claim_templates.read_accelerators(claim.resource_claim_template_name or "") is None for claim in claims
        )

    @functools.cached_property
    def has_segment(self) -> bool:
        """True if the pod shares an NVLink domain with others: launchers, which take no devices, do not."""
        return self.segment > 1 and bool(self.gang) and not self.devices.isdisjoint(self.requests)

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
        part=membership.find_part(pod),
        uncounted_rails=intent.find_uncounted(pod, fabric),
        segment=segment,
        has_late_launcher=segment > 1 and roles.has_late_launcher(pod),
        is_size_declared=segment > 1 and membership.has_controller_with_size(pod),
        is_announced=is_announced,
    )
    if len(request.offered) < len(nodes):
        return msgspec.structs.replace(request, nodes=tuple(dict.fromkeys(nodes)))
    return request
