"""Label selectors of the policy: which namespaces may use a fabric, which shape a node has.

Owns the semantics of Kubernetes' LabelSelector (apimachinery pkg/labels); knows no objects, only labels.
"""

from collections.abc import Callable, Iterable, Mapping

from railwright.fabric.policy import model

# NotIn and DoesNotExist hold for an absent key, as in apimachinery's Requirement.Matches
_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


def matches(selector: model.LabelSelector, labels: Mapping[str, str]) -> bool:
    """True when every label and expression of the selector holds; an empty selector holds always."""
    return _has_all(selector.match_labels, labels) and all(
        _OPERATORS[expression.operator](labels.get(expression.key), expression.values)
        for expression in selector.match_expressions
    )


def shape_of(document: model.FabricPolicy, labels: Mapping[str, str]) -> model.NodeShape | None:
    """The first shape whose `match` labels are all on the node, or None."""
    return first_shape(document.node_shapes, labels)


def first_shape(shapes: Iterable[model.NodeShape], labels: Mapping[str, str]) -> model.NodeShape | None:
    """The first of these shapes whose `match` labels are all there, or None."""
    return next((shape for shape in shapes if _has_all(shape.match, labels)), None)


def _has_all(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())
