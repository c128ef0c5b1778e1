"""Gives nodes whose rails and GPUs come as claims these as resources, so that they can be simulated.

A list of nodes does not say what ResourceSlices offer. Nodes that match a node shape of the policy, or without shapes
those with a label of the fabric's domains, get all rails of the fabric and its number of GPUs.
"""

from collections.abc import Sequence

import msgspec

from railwright.fabric import intent, node_views
from railwright.fabric.policy import model, presets


def add_resources(
    nodes: Sequence[node_views.Node], policy: model.FabricPolicy, name: str, source: str
) -> tuple[Sequence[node_views.Node], model.FabricPolicy, str]:
    """Return nodes and policy with resources in place of the claims of a fabric, and the source with a note."""
    claimed = policy.fabrics[name]
    assert claimed.claims is not None  # noqa: S101 - the caller has tested it
    fabric = msgspec.structs.replace(intent.fill_resources(name, claimed, {}), claims=None)
    amounts: dict[str, int | str] = {rail.resource: fabric.devices_per_rail for rail in fabric.rails if rail.resource}
    if claimed.claims.accelerators is not None:
        amounts[policy.accelerators[0]] = fabric.gpus_per_node or len(fabric.rails)
    labels = () if policy.node_shapes else presets.list_domain_keys(fabric.placement)
    counted = [_add(node, amounts) if _is_part(node, policy, labels) else node for node in nodes]
    note = f"{source}; rails by claims of DeviceClass {claimed.claims.device_class} are simulated as resources"
    return counted, msgspec.structs.replace(policy, fabrics={**policy.fabrics, name: fabric}), note


def _is_part(node: node_views.Node, policy: model.FabricPolicy, labels: Sequence[str]) -> bool:
    own = node.metadata.labels
    return model.find_shape(policy.node_shapes, own) is not None or any(own.get(key) for key in labels)


def _add(node: node_views.Node, amounts: dict[str, int | str]) -> node_views.Node:
    """Return a node with these resources, unless it reports them itself."""
    status = msgspec.structs.replace(
        node.status,
        allocatable_or_none={**amounts, **node.status.allocatable},
        capacity_or_none={**amounts, **node.status.capacity},
    )
    return msgspec.structs.replace(node, status=status)
