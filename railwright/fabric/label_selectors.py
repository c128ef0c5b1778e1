"""Matches labels as Kubernetes' LabelSelector does (apimachinery pkg/labels)."""

from collections.abc import Callable, Collection, Mapping

Compare = Callable[[str | None, Collection[str]], bool]
"""Compares a label's value, None if it is absent, with the values of an expression."""

# NotIn and DoesNotExist match if the key is absent, as in apimachinery's Requirement.Matches
OPERATORS: Mapping[str, Compare] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


def has_all_labels(required: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True if `labels` contain all required labels with the required values."""
    return all(labels.get(key) == value for key, value in required.items())
