"""Checks whether a node that the scheduler did not offer could run a pod.

Implements the checks of kube-scheduler that need only node and pod: readiness, cordon, taints, nodeSelector and
required node affinity. Only nodes that were not offered are checked, to decide whether they count as capacity for a
gang.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping

from railwright.fabric import label_selectors, views
from railwright.fabric.placement.state import object_info


def admits_pod(node: object_info.NodeInfo, spec: views.PodSpec) -> bool:
    """True if the node is schedulable and the pod tolerates its taints."""
    return node.schedulable and not any(taint.is_blocking(spec.tolerations or ()) for taint in node.taints)


def matches_selectors(node: object_info.NodeInfo, spec: views.PodSpec) -> bool:
    """True if the node selector and the required node affinity of the pod match the node."""
    selector = spec.node_selector
    if selector and any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    if not required:
        return True
    return any(_matches_term(term, node) for term in required.node_selector_terms or ())


_MAX_REQUIREMENTS = 256  # labels, terms, requirements and values of a pod, compared with each of 5,000 nodes


def depends_on_labels(spec: views.PodSpec) -> bool:
    """True if the pod's node selector and required node affinity are compared with node labels.

    False without both, and if they have too many requirements: then every node counts as selected.
    """
    required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    terms = (required and required.node_selector_terms) or ()
    requirements = [row for term in terms for row in (*(term.match_expressions or ()), *(term.match_fields or ()))]
    count = len(terms) + len(requirements) + sum(len(row.values or ()) for row in requirements)
    return 0 < count + len(spec.node_selector or ()) + bool(required) <= _MAX_REQUIREMENTS


def _matches_term(term: views.NodeSelectorTerm, node: object_info.NodeInfo) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term selects nothing (core/v1 NodeSelectorTerm)
    fields = {"metadata.name": node.name}
    return all(_matches_expression(requirement, node.labels) for requirement in term.match_expressions or ()) and all(
        _matches_expression(requirement, fields) for requirement in term.match_fields or ()
    )


def _matches_expression(requirement: views.Requirement, labels: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(requirement.operator)
    return test is not None and test(labels.get(requirement.key), requirement.values or [])


_INTEGER = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)  # Go's strconv.ParseInt in base 10; labels have 63 characters
_MAX_INTEGER = 2**63


def _build_comparison(compare: Callable[[int, int], bool]) -> label_selectors.Compare:
    """Return an operator that compares a label with one value as 64-bit integers; False if one is no integer."""

    def compare_texts(value: str | None, values: Collection[str]) -> bool:
        texts = [value or "", *values]
        if len(texts) != 2 or not all(map(_INTEGER.fullmatch, texts)):
            return False
        left, right = map(int, texts)
        return all(-_MAX_INTEGER <= number < _MAX_INTEGER for number in (left, right)) and compare(left, right)

    return compare_texts


# Operators of a node selector: those of a label selector, and comparisons of integers.
_OPERATORS: Mapping[str, label_selectors.Compare] = {
    **label_selectors.OPERATORS,
    "Gt": _build_comparison(operator.gt),
    "Lt": _build_comparison(operator.lt),
}
