"""Finds the RDMA devices of a pod's rails before a node is selected (docs/interface.md 3.3).

The pod's nodeSelector and required affinity limit the possible node shapes. No nodes are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from railwright.fabric import label_selectors, views
from railwright.fabric.policy import model as policies

Devices = tuple[str, ...]
Values = Mapping[str, AbstractSet[str | None]]
"""Label of nodes -> its possible values. None stands for a missing label, and for values that no node shape matches."""


def find_devices(pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]) -> Devices | None:
    """Return the names of the rails' devices if they are the same on every node that can run the pod, else None."""
    possible = set((find_devices_by_shape(pod, document, rails) or {}).values())
    return possible.pop() if len(possible) == 1 else None


def find_device_of_each_rail(
    pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]
) -> Devices:
    """Return the device name of each rail; "" if it is unknown, or differs between the nodes that can run the pod."""
    shapes = [*{id(shape): shape for shape in _find_possible_shapes(pod, document)}.values()]

    def find_device(rail: policies.Rail) -> str:
        devices = {
            (shape.devices if shape else {}).get(rail.name, rail.device)
            for shape in shapes
            if shape is not None or rail.device
        }
        return (devices.pop() or "") if len(devices) == 1 else ""

    return tuple([find_device(rail) for rail in rails])


def find_devices_by_shape(
    pod: views.Pod, document: policies.PolicyDocument, rails: Sequence[policies.Rail]
) -> Mapping[str, Devices] | None:
    """Return shape -> device names of the rails, for the node shapes that can run the pod.

    Returns None if the policy does not name all devices of one of these shapes. The key "" stands for nodes without a
    shape; it is absent unless the rails themselves name devices.
    """
    default = list_devices_of_shape(rails)
    known: dict[str, Devices] = {}
    for shape in _find_possible_shapes(pod, document) if document.node_shapes else [None]:
        devices = default if shape is None else list_devices_of_shape(rails, shape)
        if devices is not None:
            known["" if shape is None else shape.name] = devices
        elif shape is not None:
            return None
    return known or None


def list_devices_of_shape(rails: Sequence[policies.Rail], shape: policies.NodeShape | None = None) -> Devices | None:
    """Return the names of the rails' devices on nodes of a shape, by default on nodes without a shape.

    Returns None if a name is unknown, or if there are no rails.
    """
    shape_devices = shape.devices if shape else {}
    devices = [shape_devices.get(rail.name, rail.device) for rail in rails]
    return tuple([device for device in devices if device]) if devices and all(devices) else None


def _find_possible_shapes(pod: views.Pod, document: policies.PolicyDocument) -> Iterator[policies.NodeShape | None]:
    """Yield the node shapes that can run the pod, and None if a node without a shape can run it."""
    shapes, known = document.node_shapes, dict[str, set[str | None]]()
    for shape in shapes:
        for key, value in shape.match.items():
            known.setdefault(key, {None}).add(value)
    for allowed in _list_allowed_values(pod, known):
        for shape in shapes:
            if all(value in allowed[key] for key, value in shape.match.items()):
                yield shape
                if _implies_shape(allowed, shape):
                    break
        else:
            # every node has a shape if each allowed value of some label implies one
            if not any(
                values <= {shape.match.get(key) for shape in shapes if _implies_shape(allowed, shape, key)}
                for key, values in allowed.items()
                if None not in values
            ):
                yield None


def _implies_shape(allowed: Values, shape: policies.NodeShape, besides: str | None = None) -> bool:
    """True if every node with the allowed label values has all labels of a shape. The label `besides` is ignored."""
    return all(key == besides or allowed[key] == {value} for key, value in shape.match.items())


def _list_allowed_values(pod: views.Pod, known: Values) -> Iterator[Values]:
    """Yield the label values of nodes that match both a term of the required affinity and the node selector.

    A term without requirements matches no node (Kubernetes' API). `Gt` and `Lt` are ignored: they exclude no value.
    """
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = (affinity.required.node_selector_terms if affinity and affinity.required else None) or ()
    selected = {(key, "In", frozenset([value])) for key, value in (pod.spec.node_selector or {}).items()}
    rows = [
        selected.union([(row.key, row.operator, frozenset(row.values or ())) for row in term.match_expressions or ()])
        for term in terms
        if term.match_expressions or term.match_fields
    ]
    # many terms of a long list have the same requirements
    for requirements in dict.fromkeys(map(frozenset, rows if terms else [selected])):
        allowed = {key: {*values} for key, values in known.items()}
        for key, operator, values in requirements:
            if key in known and operator in label_selectors.OPERATORS:
                names_no_shape = operator != "In" or not values <= known[key]  # so that None stays possible
                allowed[key] = {
                    value
                    for value in allowed[key]
                    if (names_no_shape if value is None else label_selectors.OPERATORS[operator](value, values))
                }
        yield allowed
