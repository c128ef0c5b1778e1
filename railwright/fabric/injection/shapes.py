"""Which RDMA devices the rails of a pod have, as far as that is known before a node is chosen (ruling 14).

Owns what a pod's nodeSelector and required affinity say about node shapes. Knows no nodes: once one is chosen,
`on_node` answers for its labels.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import views
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import selectors

Devices = tuple[str, ...]
Expression = tuple[str, str, tuple[str, ...]]  # label, operator, values


class Known(msgspec.Struct, frozen=True):
    """`devices`: the one set there can be. `per_node`: there are several, so the node decides."""

    devices: Devices | None = None
    per_node: bool = False


class Pins(msgspec.Struct, frozen=True):
    """What must hold of a node's labels: allowed values, forbidden values (None = any value)."""

    allowed: Mapping[str, frozenset[str]]
    forbidden: Mapping[str, AbstractSet[str] | None]

    def narrowed(self, key: str, value: str) -> "Pins":
        """The same with one value left of one label."""
        return Pins({**self.allowed, key: frozenset({value})}, self.forbidden)

    def excludes(self, shape: policies.NodeShape) -> bool:
        """True where no node of the shape can take the pod."""
        return any(self._contradicts(key, value) for key, value in shape.match.items())

    def implies(self, shape: policies.NodeShape) -> bool:
        """True where every node that can take the pod has the shape's labels."""
        return all(self.allowed.get(key) == frozenset({value}) for key, value in shape.match.items())

    def _contradicts(self, key: str, value: str) -> bool:
        if key in self.allowed and value not in self.allowed[key]:
            return True
        if key not in self.forbidden:
            return False
        forbidden = self.forbidden[key]
        return forbidden is None or value in forbidden


def before_binding(pod: views.Pod, document: policies.FabricPolicy, rails: Sequence[policies.Rail]) -> Known:
    """The devices of the rails on every node the pod can go to."""
    if not document.node_shapes:
        return Known(_devices(rails, None))
    nodes = set(_possible_devices(pod, document, rails))
    return Known(nodes.pop()) if len(nodes) == 1 else Known(per_node=any(nodes))


def possible(
    pod: views.Pod, document: policies.FabricPolicy, rails: Sequence[policies.Rail]
) -> tuple[Devices, ...] | None:
    """Every set of devices the rails can have on a node the pod can go to; None where one of them is not known."""
    sets = dict.fromkeys(_possible_devices(pod, document, rails) if document.node_shapes else [_devices(rails, None)])
    known = tuple(devices for devices in sets if devices is not None)
    return known if known and len(known) == len(sets) else None


def _possible_devices(
    pod: views.Pod, document: policies.FabricPolicy, rails: Sequence[policies.Rail]
) -> Iterator[Devices | None]:
    """The sets there can be. Nodes of no shape count only where the rails name their devices without one."""
    default = _devices(rails, None)
    for shape in _possible(pod, document):
        if shape is not None or default is not None:
            yield default if shape is None else _devices(rails, shape)


def on_node(
    document: policies.FabricPolicy, rails: Sequence[policies.Rail], labels: Mapping[str, str]
) -> Devices | None:
    """The devices of the rails on a node with these labels."""
    return _devices(rails, selectors.shape_of(document, labels))


def _devices(rails: Sequence[policies.Rail], shape: policies.NodeShape | None) -> Devices | None:
    """None where some rail has no device, or there are no rails."""
    own = shape.devices if shape else {}
    devices = [own.get(rail.name, rail.device) for rail in rails]
    return tuple(device for device in devices if device) if devices and all(devices) else None


def _possible(pod: views.Pod, document: policies.FabricPolicy) -> Iterator[policies.NodeShape | None]:
    """The shapes of nodes that could take the pod; None for nodes of no shape."""
    for pins in _pins(pod, {key for shape in document.node_shapes for key in shape.match}):
        for shape in document.node_shapes:
            if pins.excludes(shape):
                continue
            yield shape
            if pins.implies(shape):
                break
        else:
            if not _all_shaped(pins, document.node_shapes):
                yield None


def _all_shaped(pins: Pins, shapes: Sequence[policies.NodeShape]) -> bool:
    """True where every node that can take the pod has a shape: some label has few values left, and each implies one."""
    return any(
        all(any(pins.narrowed(key, value).implies(shape) for shape in shapes) for value in values)
        for key, values in pins.allowed.items()
    )


def _pins(pod: views.Pod, keys: Collection[str]) -> Iterator[Pins]:
    """One for each term of the required affinity, any of which may hold, with the node selector in each.

    Labels but `keys` tell nothing of shapes; a term without any requirement matches no node (Kubernetes' API).
    """
    selector = pod.spec.node_selector or {}
    chosen = {key: frozenset({selector[key]}) for key in keys if key in selector}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = (affinity.required.node_selector_terms if affinity and affinity.required else None) or ()
    if not terms:
        yield Pins(chosen, {})
    for told in dict.fromkeys(_told(term, keys) for term in terms if term.match_expressions or term.match_fields):
        yield _term(chosen, told)


def _told(term: views.NodeSelectorTerm, keys: Collection[str]) -> tuple[Expression, ...]:
    """What a term says of shapes; the same for many a term of a long list."""
    return tuple(
        [
            (each.key, each.operator, tuple(each.values or ()))
            for each in term.match_expressions or ()
            if each.key in keys
        ]
    )


def _term(chosen: Mapping[str, frozenset[str]], expressions: Iterable[Expression]) -> Pins:
    allowed = dict(chosen)
    forbidden: dict[str, set[str] | None] = {}
    for key, operator, written in expressions:
        values = frozenset(written)
        if operator == "In":
            allowed[key] = allowed[key] & values if key in allowed else values
        elif operator == "NotIn":
            before = forbidden.setdefault(key, set())
            if before is not None:
                before |= values  # grown in place: a user may write thousands
        elif operator == "DoesNotExist":
            forbidden[key] = None
    return Pins(allowed, forbidden)
