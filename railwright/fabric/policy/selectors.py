"""Matches labels with the policy's selectors of namespaces and node shapes.

The semantics are those of Kubernetes' LabelSelector (apimachinery pkg/labels).
"""

from collections.abc import Callable, Iterable, Mapping

from railwright.fabric.policy import model

# NotIn and DoesNotExist match if the key is absent, as in apimachinery's Requirement.Matches
_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


def matches(selector: model.LabelSelector, labels: Mapping[str, str]) -> bool:
    """True if all labels and expressions of the selector match. An empty selector matches everything."""
    return _has_all(selector.match_labels, labels) and all(
        _OPERATORS[expression.operator](labels.get(expression.key), expression.values)
        for expression in selector.match_expressions
    )


def shape_of(document: model.FabricPolicy, labels: Mapping[str, str]) -> model.NodeShape | None:
    """Return the shape of a node with `labels`: the policy's first match, or None."""
    return first_shape(document.node_shapes, labels)


def first_shape(shapes: Iterable[model.NodeShape], labels: Mapping[str, str]) -> model.NodeShape | None:
    """Return the first shape with `match` labels that are all in `labels`, or None."""
    return next((shape for shape in shapes if _has_all(shape.match, labels)), None)


def _has_all(required: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in required.items())
