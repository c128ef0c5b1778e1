"""Where a node sits in the fabric: its chain of domains, closest first, read from node labels.

Owns distance and sameness of domains. Knows no rails, pods or policy; which labels make the chain is passed in.
"""

from collections.abc import Mapping, Sequence

Place = tuple[str, ...]
"""The values of a node's domain labels, closest domain first; "" where the node has no such label."""

Domain = tuple[str, ...]
"""A domain by its whole chain upwards, so that equal names under different parents stay apart."""

NOWHERE: Domain = ()


def place_of(labels: Mapping[str, str], keys: Sequence[str]) -> Place:
    """The place of a node with these labels; `keys` are the domain labels, closest first."""
    return tuple(labels.get(key, "") for key in keys)


def domain(place: Place, level: int = 0) -> Domain:
    """The domain of a place at a level (0 = leaf); NOWHERE where the label is missing or there is no such level."""
    return place[level:] if level < len(place) and place[level] else NOWHERE


def distance(one: Place, other: Place) -> int:
    """Levels to climb to a domain both places share: 0 the same leaf, 1 the same spine, len(place) none."""
    for level in range(min(len(one), len(other))):
        if one[level] and one[level:] == other[level:]:
            return level
    return max(len(one), len(other))


def name_of(domain_: Domain) -> str:
    """How a domain is shown to people: the closest name first, parents after it."""
    return " in ".join(part for part in domain_ if part) or "(no domain label)"
