"""Reads a node's domains (leaf, spine and so on) from its labels, and computes distances between nodes.

Nodes may lack labels at any level. Such levels are ignored when computing distances. A node without the first label is
in no leaf.
"""

from collections.abc import Mapping, Sequence

Place = tuple[str, ...]
"""The values of a node's domain labels, closest domain first; "" for a missing label or a placeholder."""

Domain = tuple[str, ...]
"""A domain's name followed by those of its parents, so that equal names under different parents differ."""

NO_DOMAIN: Domain = ()

RAIL = "{rail}"  # in a key: placeholder for a rail's name, at sites that label nodes with a leaf for each rail
# Oracle's labeller writes this if a node's metadata has no value; such nodes are not behind one switch
# (oracle-quickstart/oci-hpc-oke terraform/files/oci-hpc-oke-utils).
_PLACEHOLDERS = frozenset({"no-imds-data"})
_UNLABELLED = "-"  # stands for a rail without a label; not a valid label value


def read_domains(labels: Mapping[str, str], keys: Sequence[str], rails: Sequence[str] = ()) -> Place:
    """Return the values of the domain labels `keys`, closest first, for a node with `labels`.

    The value of a key with RAIL joins the values of all `rails`. Nodes share that domain if they agree on every rail.
    """
    return tuple([_join_rails(labels, key, rails) if RAIL in key else _get_value(labels, key) for key in keys])


def expand_rails(key: str, rails: Sequence[str]) -> Sequence[str]:
    """Return the label keys that `key` stands for: one for each rail if it contains RAIL, otherwise itself."""
    return [key.replace(RAIL, rail) for rail in rails] if RAIL in key else [key]


def _join_rails(labels: Mapping[str, str], key: str, rails: Sequence[str]) -> str:
    values = [_get_value(labels, rail_key) for rail_key in expand_rails(key, rails)]
    return "+".join(value or _UNLABELLED for value in values) if any(values) else ""


def _get_value(labels: Mapping[str, str], key: str) -> str:
    """Return a label's value; "" if it is missing, or if it means that the domain is unknown."""
    value = labels.get(key, "")
    return "" if value in _PLACEHOLDERS else value


def get_domain(place: Place, level: int = 0) -> Domain:
    """Return the domain at a level (0 is the leaf), or NO_DOMAIN if the node has no label there."""
    return place[level:] if level < len(place) and place[level] else NO_DOMAIN


def compute_distance(one: Place, other: Place) -> int:
    """Return the lowest level with a shared domain: 0 for the same leaf, 1 for the same spine, len(place) for none."""
    for level in range(min(len(one), len(other))):
        if one[level] and one[level:] == other[level:]:
            return level
    return max(len(one), len(other))


def format_domain(domain_: Domain) -> str:
    """Return a domain's name for messages: the closest name first, then its parents."""
    return " in ".join(part for part in domain_ if part) or "(no domain label)"
