"""Matches labels with the policy's selectors of namespaces and node shapes."""

from collections.abc import Iterable, Mapping

from railwright.fabric import label_selectors
from railwright.fabric.policy import model


def matches(selector: model.LabelSelector, labels: Mapping[str, str]) -> bool:
    """True if all labels and expressions of the selector match. An empty selector matches everything."""
    return label_selectors.matches(selector.match_labels, selector.match_expressions, labels)


def find_shape(document: model.FabricPolicy, labels: Mapping[str, str]) -> model.NodeShape | None:
    """Return the shape of a node with `labels`: the policy's first match, or None."""
    return find_first_shape(document.node_shapes, labels)


def find_first_shape(shapes: Iterable[model.NodeShape], labels: Mapping[str, str]) -> model.NodeShape | None:
    """Return the first shape with `match` labels that are all in `labels`, or None."""
    return next((shape for shape in shapes if label_selectors.has_all(shape.match, labels)), None)
