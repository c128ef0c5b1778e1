"""What is written when a pod is bound: where it landed on the fabric, and the device list of that node.

Owns `placement` and the per-node line of `nccl.conf` (ruling 14). Never refuses: the scheduler has decided, and the
pod is better off without an annotation than unbound.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names, quantity, resources, topology, views
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import delivery, facts, model, rails, record, shapes, tables
from railwright.fabric.nccl import conf
from railwright.fabric.placement import rails as wanting
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import presets, selectors


class Placement(msgspec.Struct, frozen=True):
    """The annotation `placement`, keys in this order; `shape` null where no shape matches the node."""

    node: str
    shape: str | None
    rails: tuple[str, ...]  # those the node can give; all of the pod's where it can give none
    domains: tuple[str | None, ...]  # the node's values of the fabric's domain labels, closest first; null = unlabelled


def annotations_for(
    pod: views.Pod, policy: policies.Policy, known: facts.Facts, node: views.Node
) -> Mapping[str, str] | None:
    """The annotations of a pod bound to `node`; None where the pod did not opt in.

    Empty where they would not fit: over its limit no later change of the pod, its status among them, is accepted.
    """
    try:
        aim = aims.find(_before_binding(pod), policy, known)
    except model.RefusedError:  # admitted under another policy; its node and its devices are what they are
        return _fitting(pod, {names.PLACEMENT: _outlived(pod, policy.document, node)})
    if aim is None:
        return None
    chosen = _healthy(aim.rails, node)
    landed = _placement(policy.document, aim.fabric, node, [each.name for each in chosen])
    lines = _node_lines(aim, [each.rail for each in chosen], node.metadata.labels)
    return _fitting(pod, {names.PLACEMENT: landed, **({names.NCCL_CONF: lines} if lines else {})})


def awaits_devices(pod: views.Pod, policy: policies.Policy, known: facts.Facts) -> bool:
    """True where the pod's list of devices follows from its node and is written at binding."""
    try:
        aim = aims.find(_before_binding(pod), policy, known)
        return aim is not None and aim.role.rails and "env" not in aim.wishes.skip and delivery.route(aim).per_node
    except model.RefusedError:
        return False


def _placement(
    document: policies.FabricPolicy, fabric: policies.Fabric | None, node: views.Node, given: Sequence[str]
) -> str:
    labels = node.metadata.labels
    shape = selectors.shape_of(document, labels)
    placement = Placement(
        node=node.metadata.name,
        shape=shape.name if shape else None,
        rails=tuple(given),
        domains=_domains(fabric, labels) if fabric else (),
    )
    return msgspec.json.encode(placement).decode()


def _domains(fabric: policies.Fabric, labels: Mapping[str, str]) -> tuple[str | None, ...]:
    """One for each label up to the last that the node has: the place in the list is the tier, whatever is missing."""
    keys = presets.domains(fabric.placement)
    found = [value or None for value in topology.place_of(labels, keys, [rail.name for rail in fabric.rails])]
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _healthy(chosen: Sequence[rails.Chosen], node: views.Node) -> Sequence[rails.Chosen]:
    """The rails the node has devices for, taken or free (ruling 21); all of them where it has none.

    An empty list of devices would be no list to NCCL: it would take every device of the node.
    """
    offered = node.status.allocatable
    alive = [each for each in chosen if each.resource is None or _some(offered.get(each.resource, 0))]
    return alive or chosen


def _some(amount: views.Written) -> bool:
    try:
        return quantity.milli(amount) > 0
    except quantity.InvalidQuantityError:
        return False


def _node_lines(aim: aims.Aim, given: Sequence[policies.Rail], labels: Mapping[str, str]) -> str | None:
    """The pod's file with the devices of its node, where only the node decides them."""
    if not aim.role.rails or "env" in aim.wishes.skip:
        return None
    route = delivery.route(aim)
    if not route.per_node:
        return None
    devices = shapes.on_node(aim.document, given, labels)
    found = tables.of(aim.document).rank(aim.fabric_name, given, devices, host_network=aim.host_network)
    lines = [*route.in_file, *(each for each in found.carried if each.name == tables.HCA)]
    return conf.emit((each.name, each.value) for each in lines) if len(lines) > len(route.in_file) else None


def _outlived(pod: views.Pod, document: policies.FabricPolicy, node: views.Node) -> str:
    """The placement of a pod that the policy in force would refuse: by what it requests, else by its record."""
    _, fabric = wanting.fabric_of(pod, document)
    if fabric is None:
        return _placement(document, None, node, wanting.record_of(pod)[1] or ())
    needs = wanting.needs_of(pod, resources.requests_of(pod.spec), fabric)
    return _placement(document, fabric, node, [rail for need in needs for rail in need.rails])


def _fitting(pod: views.Pod, written: Mapping[str, str]) -> Mapping[str, str]:
    size = record.size_of({**pod.metadata.annotations, **written})
    return written if size <= record.MAX_ANNOTATIONS else {}


def _before_binding(pod: views.Pod) -> views.Pod:
    """The pod as admission saw it: without a placement of an earlier try."""
    if names.PLACEMENT not in pod.metadata.annotations:
        return pod
    rest = {key: value for key, value in pod.metadata.annotations.items() if key != names.PLACEMENT}
    metadata = msgspec.structs.replace(pod.metadata, annotations_or_none=rest)
    return msgspec.structs.replace(pod, metadata=metadata)
