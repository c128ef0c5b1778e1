"""What of a pod decides how any node stands towards it: pods of one profile see every node alike.

Owns the sameness of asks: mates of a gang have one profile, so that what was worked out for the nodes serves them all.
"""

from collections.abc import Hashable

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement import ask, bandwidth, kubelet, numa, rails
from railwright.fabric.policy import model, presets

_encode = msgspec.json.Encoder().encode


class Profile(msgspec.Struct, frozen=True):
    """One kind of member, under one policy."""

    key: Hashable
    spec: views.PodSpec  # selector, tolerations and affinity only are read
    fabric: model.Fabric
    domains: tuple[str, ...]
    shapes: tuple[model.NodeShape, ...]
    accelerators: tuple[str, ...]  # the policy's resource names
    needs: tuple[rails.Need, ...]
    requests: resources.Amounts
    devices: tuple[str, ...]  # resources counted one by one: the accelerators it takes, then its pools
    want: numa.Want  # all that it wants, requested or not
    requested: numa.Want  # of that what it requests: all that kubelet has to find
    containers: tuple[numa.Want, ...]  # the same by container; () where the policy ignores NUMA nodes
    alone: bool  # its job is this one pod: it completes nodes first

    @property
    def links(self) -> float:
        """Of a node's links upwards, how many there are for each rail that such a pod uses."""
        each = max(1, self.fabric.devices_per_rail) * resources.UNIT
        used = sum(min(len(need.rails), -(-need.amount // each)) for need in self.needs)
        bundled = presets.uplinks(self.fabric.placement) == "bundle"
        return bandwidth.links_each(len(self.fabric.rails), used, bundled=bundled)


def of(question: ask.Ask, requests: resources.Amounts, *, alone: bool) -> Profile:
    """The profile of members with these requests, in the asking pod's gang."""
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
