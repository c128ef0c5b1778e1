"""The fields of nodes that placement uses."""

from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric import interning, node_views, resources

Share = Callable[[resources.Amounts], resources.FrozenAmounts]  # returns one object for equal amounts


class NodeInfo(msgspec.Struct, gc=False, frozen=True):
    """The fields of a node that placement uses. Amounts include the devices of its ResourceSlices."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: resources.FrozenAmounts
    capacity: resources.FrozenAmounts
    taints: tuple[node_views.Taint, ...]
    schedulable: bool  # Ready and not cordoned


def read_node(node: node_views.Node, interner: interning.StringInterner, share: Share) -> NodeInfo:
    """Return the fields of a node, with the amounts that kubelet reports."""
    conditions = node.status.conditions or ()
    ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
    return NodeInfo(
        name=node.metadata.name,
        uid=node.metadata.uid,
        labels=interner.intern_mapping(node.metadata.labels),
        allocatable=share(resources.parse_amounts(node.status.allocatable)),
        capacity=share(resources.parse_amounts(node.status.capacity)),
        taints=tuple(node.spec.taints or ()),
        schedulable=ready and not node.spec.unschedulable,
    )
