"""The scheduling signature of a pod: everything that determines the evaluation of a node for it.

Pods with the same signature (usually all workers of a gang) share the cached evaluations of all nodes.
"""

from collections.abc import Hashable

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement import ask, bandwidth, kubelet, numa, rails
from railwright.fabric.policy import model, presets

_encode = msgspec.json.Encoder().encode


class Profile(msgspec.Struct, frozen=True):
    """The scheduling signature of equal pods under one policy."""

    key: Hashable
    spec: views.PodSpec  # only node selector, tolerations and affinity are used
    fabric: model.Fabric
    domains: tuple[str, ...]
    shapes: tuple[model.NodeShape, ...]
    accelerators: tuple[str, ...]  # the policy's resource names
    needs: tuple[rails.Need, ...]
    requests: resources.Amounts
    devices: tuple[str, ...]  # order of device amounts: the requested accelerators, then the pools
    want: numa.Want  # needed devices, requested or not
    requested: numa.Want  # requested devices, which kubelet allocates
    containers: tuple[numa.Want, ...]  # requested devices by container; () if the policy ignores NUMA nodes
    alone: bool  # single-pod job, which fills partly used nodes first

    @property
    def links(self) -> float:
        """Return the number of uplinks available to each rail that such a pod uses."""
        each = max(1, self.fabric.devices_per_rail) * resources.UNIT
        used = sum(min(len(need.rails), -(-need.amount // each)) for need in self.needs)
        bundled = presets.uplinks(self.fabric.placement) == "bundle"
        return bandwidth.links_each(len(self.fabric.rails), used, bundled=bundled)


def of(question: ask.Ask, requests: resources.Amounts, *, alone: bool) -> Profile:
    """Build the signature of pods with these requests in the requesting pod's gang."""
    spec = question.spec
    needs = question.needs if requests is question.requests else rails.requested(requests, question.fabric.rails)
    taken = tuple(name for name in question.accelerators if requests.get(name, 0) > 0)
    pools = tuple(need.resource for need in needs)
    constraints = _encode((spec.node_selector, spec.affinity, spec.tolerations))
    asked = tuple(sorted(requests.items()))
    accelerators = tuple((name, requests[name]) for name in taken)
    whole = numa.Want(accelerators=accelerators, pools=tuple((need.resource, need.amount) for need in needs))
    requested = numa.Want(accelerators, tuple((name, requests[name]) for name in pools if requests.get(name, 0) > 0))
    ignored = question.fabric.placement.numa == "ignore"
    containers = () if ignored else kubelet.containers_of(spec, requested)
    where = (question.policy, question.fabric_name, question.fabric.rails, question.domains)
    return Profile(
        key=(*where, needs, asked, constraints, containers, alone),
        spec=spec,
        fabric=question.fabric,
        domains=question.domains,
        shapes=question.shapes,
        accelerators=question.accelerators,
        needs=needs,
        requests=requests,
        devices=(*taken, *pools),
        want=whole,
        requested=requested,
        containers=containers,
        alone=alone,
    )
