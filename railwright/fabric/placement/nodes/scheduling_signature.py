"""The scheduling signature of a pod: all inputs from the pod and the policy to the evaluation of a node.

Pods with the same signature (usually all workers of a gang) share the cached evaluations of all nodes.
"""

from collections.abc import Hashable, Mapping

import msgspec

from railwright.fabric import intent, resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import numa
from railwright.fabric.policy import model, presets

_encode = msgspec.json.Encoder().encode


class SchedulingSignature(msgspec.Struct, frozen=True):
    """The scheduling signature of equal pods under one policy."""

    key: Hashable
    spec: views.PodSpec  # only node selector, tolerations and affinity are used
    fabric: model.Fabric
    domains: tuple[str, ...]
    shapes: tuple[model.NodeShape, ...]
    accelerators: tuple[str, ...]  # the policy's resource names
    needs: tuple[intent.Need, ...]
    uncounted_rails: tuple[str, ...]  # used without a resource
    requests: resources.Amounts
    devices: tuple[str, ...]  # order of device amounts: the requested accelerators, then the pools
    full_demand: numa.NumaDemand  # needed devices, requested or not
    is_single_pod: bool  # single-pod job, which fills partly used nodes first

    def count_devices_of_nics(self, need: intent.Need) -> int:
        """Return the devices of a pool, in milli-units, that are in use if each NIC has one pod."""
        nics = sum(1 for rail in self.fabric.rails if rail.resource == need.resource) or 1
        return self.fabric.count_devices(nics) * resources.UNIT

    @property
    def unrequested(self) -> Mapping[str, int]:
        """Return the resources of rails that the pod needs and does not request, with the needed amounts."""
        return {need.resource: need.amount for need in self.needs if not self.requests.get(need.resource, 0)}

    def count_uplinks_per_rail(self) -> float:
        """Return the number of uplinks available to each rail that a pod with this signature uses.

        If all rails of a node share the uplinks of one switch, a pod that uses four of eight rails has two uplinks for
        each. If each rail has separate uplinks, it has one.
        """
        rails = len(self.fabric.rails)
        used = sum(self.fabric.count_rails(-(-need.amount // resources.UNIT), len(need.rails)) for need in self.needs)
        is_shared = not presets.has_own_uplinks(self.fabric.placement)
        return rails / used if is_shared and 0 < used < rails else 1.0


def build_signature(
    request: scheduling_request.SchedulingRequest,
    requests: resources.Amounts,
    *,
    is_single_pod: bool,
) -> SchedulingSignature:
    """Build the signature of pods with these requests in the requesting pod's gang."""
    spec = request.spec
    needs = request.needs if requests == request.requests else intent.find_requested(requests, request.fabric.rails)
    constraints = _encode((spec.node_selector, spec.affinity, spec.tolerations))
    accelerators = tuple((name, requests[name]) for name in request.accelerators if requests.get(name, 0) > 0)
    demand = numa.NumaDemand(accelerators, pools=tuple((need.resource, need.amount) for need in needs))
    fabric_key = (request.policy, request.fabric_name, request.fabric.rails, request.uncounted_rails, request.domains)
    return SchedulingSignature(
        key=(*fabric_key, needs, tuple(sorted(requests.items())), constraints, is_single_pod),
        spec=spec,
        fabric=request.fabric,
        domains=request.domains,
        shapes=request.shapes,
        accelerators=request.accelerators,
        needs=needs,
        uncounted_rails=request.uncounted_rails,
        requests=requests,
        devices=tuple(name for name, _ in (*accelerators, *demand.pools)),
        full_demand=demand,
        is_single_pod=is_single_pod,
    )
