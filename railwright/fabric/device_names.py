"""Finds the RDMA devices of a pod's rails as far as they are known before a node is selected (docs/interface.md 3.3).

The pod's nodeSelector and required affinity limit the possible node shapes. No nodes are read: `resolve_on_node` takes
the labels of a selected node.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import views
from railwright.fabric.policy import model as policies

Devices = tuple[str, ...]
Expression = tuple[str, str, tuple[str, ...]]  # label, operator, values


class NodeConstraints(msgspec.Struct, frozen=True):
    """Constraints on a node's labels: allowed values, and forbidden values (None forbids any value)."""

    allowed: Mapping[str, frozenset[str]]
    forbidden: Mapping[str, AbstractSet[str] | None]

    def restrict(self, key: str, value: str) -> "NodeConstraints":
        """Return the same constraints with one allowed value for one label."""
        return NodeConstraints({**self.allowed, key: frozenset({value})}, self.forbidden)

    def excludes(self, shape: policies.NodeShape) -> bool:
        """True if no node of the shape can run the pod."""
        return any(self._contradicts(key, value) for key, value in shape.match.items())

    def implies(self, shape: policies.NodeShape) -> bool:
        """True if every node that can run the pod has the shape's labels."""
        return all(self.allowed.get(key) == frozenset({value}) for key, value in shape.match.items())

    def _contradicts(self, key: str, value: str) -> bool:
        if key in self.allowed and value not in self.allowed[key]:
            return True
        if key not in self.forbidden:
            return False
        forbidden = self.forbidden[key]
        return forbidden is None or value in forbidden


def find_devices(pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]) -> Devices | None:
    """Return the stated devices of the rails, if they are the same on every node that can run the pod."""
    if not document.node_shapes:
        return _list_devices(rails, None)
    device_sets = set(_find_possible_devices(pod, document, rails))
    return device_sets.pop() if len(device_sets) == 1 else None


def find_each_device(pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]) -> Devices:
    """Return the stated device of each rail, "" for one without a device or with different ones on possible nodes."""
    if known := find_devices(pod, document, rails):
        return known
    shapes = [*{id(shape): shape for shape in _find_possible_shapes(pod, document)}.values()]

    def find(rail: policies.Rail) -> str:
        devices = {
            (shape.devices if shape else {}).get(rail.name, rail.device)
            for shape in shapes
            if shape is not None or rail.device
        }
        return (devices.pop() or "") if len(devices) == 1 else ""

    return tuple([find(rail) for rail in rails])


def find_possible(
    pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]
) -> tuple[Devices, ...] | None:
    """Return every possible set of devices of the rails, or None if one of them is unknown."""
    device_sets = dict.fromkeys(
        _find_possible_devices(pod, document, rails) if document.node_shapes else [_list_devices(rails, None)]
    )
    known_sets = tuple(devices for devices in device_sets if devices is not None)
    return known_sets if known_sets and len(known_sets) == len(device_sets) else None


def _find_possible_devices(
    pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]
) -> Iterator[Devices | None]:
    """Yield the possible device sets. Nodes without a shape count only if the rails have devices without one."""
    default = _list_devices(rails, None)
    for shape in _find_possible_shapes(pod, document):
        if shape is not None or default is not None:
            yield default if shape is None else _list_devices(rails, shape)


def _list_devices(rails: Sequence[policies.Rail], shape: policies.NodeShape | None) -> Devices | None:
    """Return None if some rail has no device, or if there are no rails."""
    shape_devices = shape.devices if shape else {}
    devices = [shape_devices.get(rail.name, rail.device) for rail in rails]
    return tuple([device for device in devices if device]) if devices and all(devices) else None


def _find_possible_shapes(pod: views.Pod, document: policies.PolicyDocument) -> Iterator[policies.NodeShape | None]:
    """Yield the shapes of nodes that can run the pod, and None for nodes without a shape."""
    for constraints in _build_constraints(pod, {key for shape in document.node_shapes for key in shape.match}):
        for shape in document.node_shapes:
            if constraints.excludes(shape):
                continue
            yield shape
            if constraints.implies(shape):
                break
        else:
            if not _has_shape_on_all_nodes(constraints, document.node_shapes):
                yield None


def _has_shape_on_all_nodes(constraints: NodeConstraints, shapes: Sequence[policies.NodeShape]) -> bool:
    """True if every node that can run the pod has a shape, because each allowed value of some label implies one."""
    return any(
        all(any(constraints.restrict(key, value).implies(shape) for shape in shapes) for value in values)
        for key, values in constraints.allowed.items()
    )


def _build_constraints(pod: views.Pod, keys: Collection[str]) -> Iterator[NodeConstraints]:
    """Yield the constraints for each term of the required affinity, each with those of the node selector.

    Only labels in `keys` affect shapes. A term without requirements matches no node (Kubernetes' API).
    """
    selector = pod.spec.node_selector or {}
    allowed = {key: frozenset({selector[key]}) for key in keys if key in selector}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = (affinity.required.node_selector_terms if affinity and affinity.required else None) or ()
    if not terms:
        yield NodeConstraints(allowed, {})
    for expressions in dict.fromkeys(
        _select_expressions(term, keys) for term in terms if term.match_expressions or term.match_fields
    ):
        yield _build_term_constraints(allowed, expressions)


def _select_expressions(term: views.NodeSelectorTerm, keys: Collection[str]) -> tuple[Expression, ...]:
    """Return the expressions of a term about labels in `keys`. Many terms of a long list have the same ones."""
    return tuple(
        [
            (expression.key, expression.operator, tuple(expression.values or ()))
            for expression in term.match_expressions or ()
            if expression.key in keys
        ]
    )


def _build_term_constraints(
    selected: Mapping[str, frozenset[str]], expressions: Iterable[Expression]
) -> NodeConstraints:
    allowed = dict(selected)
    forbidden: dict[str, set[str] | None] = {}
    for key, operator, expression_values in expressions:
        values = frozenset(expression_values)
        if operator == "In":
            allowed[key] = allowed[key] & values if key in allowed else values
        elif operator == "NotIn":
            forbidden_values = forbidden.setdefault(key, set())
            if forbidden_values is not None:
                forbidden_values |= values  # updated in place: a user may write thousands of expressions
        elif operator == "DoesNotExist":
            forbidden[key] = None
    return NodeConstraints(allowed, forbidden)
