"""What is written when a pod is bound: where it landed on the fabric, and the device list of that node.

Owns `placement` and the per-node line of `nccl.conf` (ruling 14). Never refuses: the scheduler has decided, and the
pod is better off without an annotation than unbound.
"""

from collections.abc import Mapping

import msgspec

from fabric import names, views
from fabric.injection import aim as aims
from fabric.injection import delivery, facts, model, record, shapes, tables
from fabric.nccl import conf
from fabric.policy import model as policies
from fabric.policy import presets, selectors


class Placement(msgspec.Struct, frozen=True):
    """The annotation `placement`, keys in this order; `shape` null where no shape matches the node."""

    node: str
    shape: str | None
    rails: tuple[str, ...]
    domains: tuple[str, ...]  # the node's values of the fabric's domain labels, closest first


def annotations_for(
    pod: views.Pod, policy: policies.Policy, known: facts.Facts, node: views.Node
) -> Mapping[str, str] | None:
    """The annotations of a pod bound to `node`; None where the pod did not opt in or no longer makes sense.

    Empty where they would not fit: over its limit no later change of the pod, its status among them, is accepted.
    """
    stripped = _before_binding(pod)
    try:
        aim = aims.find(stripped, policy, known)
    except model.RefusedError:
        return None  # admitted under another policy; nothing true could be said
    if aim is None:
        return None
    labels = node.metadata.labels
    shape = selectors.shape_of(policy.document, labels)
    placement = Placement(
        node=node.metadata.name,
        shape=shape.name if shape else None,
        rails=tuple(chosen.name for chosen in aim.rails),
        domains=tuple(labels[key] for key in presets.domains(aim.fabric.placement) if key in labels),
    )
    written = {names.PLACEMENT: msgspec.json.encode(placement).decode()}
    if lines := _node_lines(aim, labels):
        written[names.NCCL_CONF] = lines
    size = record.size_of({**pod.metadata.annotations, **written})
    return written if size <= record.MAX_ANNOTATIONS else {}


def _node_lines(aim: aims.Aim, labels: Mapping[str, str]) -> str | None:
    """The pod's file with the devices of its node, where only the node decides them."""
    if not aim.role.rails or "env" in aim.wishes.skip:
        return None
    route = delivery.route(aim)
    if not route.per_node:
        return None
    rails = [chosen.rail for chosen in aim.rails]
    devices = shapes.on_node(aim.document, rails, labels)
    found = tables.of(aim.document).rank(aim.fabric_name, rails, devices, host_network=aim.host_network)
    lines = [*route.in_file, *(each for each in found.carried if each.name == tables.HCA)]
    return conf.emit((each.name, each.value) for each in lines) if len(lines) > len(route.in_file) else None


def _before_binding(pod: views.Pod) -> views.Pod:
    """The pod as admission saw it: without a placement of an earlier try."""
    if names.PLACEMENT not in pod.metadata.annotations:
        return pod
    rest = {key: value for key, value in pod.metadata.annotations.items() if key != names.PLACEMENT}
    metadata = msgspec.structs.replace(pod.metadata, annotations_or_none=rest)
    return msgspec.structs.replace(pod, metadata=metadata)
