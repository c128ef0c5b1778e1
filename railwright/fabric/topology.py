"""Where a node sits in the fabric: its chain of domains, closest first, read from node labels.

Owns distance and sameness of domains. A missing label is a level that a place does not have: it is skipped, on the way
up as at the top, and a place without its closest label is in no leaf. Knows no pods or policy; which labels make the
chain is passed in.
"""

from collections.abc import Mapping, Sequence

Place = tuple[str, ...]
"""The values of a node's domain labels, closest domain first; "" where the node has no such label."""

Domain = tuple[str, ...]
"""A domain by its whole chain upwards, so that equal names under different parents stay apart."""

NOWHERE: Domain = ()

RAIL = "{rail}"  # in a key: the name of each rail, where a site labels its nodes with a leaf for every rail
_UNLABELLED = "-"  # in the place of one rail's value; no label value may be this


def place_of(labels: Mapping[str, str], keys: Sequence[str], rails: Sequence[str] = ()) -> Place:
    """The place of a node with these labels; `keys` are the domain labels, closest first.

    A key with RAIL in it has the values of all `rails`, in their order: nodes share it where every rail does.
    """
    return tuple(_joined(labels, key, rails) if RAIL in key else labels.get(key, "") for key in keys)


def per_rail(key: str, rails: Sequence[str]) -> Sequence[str]:
    """The labels a key with RAIL stands for, one a rail; the key alone where it is a plain one."""
    return [key.replace(RAIL, rail) for rail in rails] if RAIL in key else [key]


def _joined(labels: Mapping[str, str], key: str, rails: Sequence[str]) -> str:
    values = [labels.get(each, "") for each in per_rail(key, rails)]
    return "+".join(value or _UNLABELLED for value in values) if any(values) else ""


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
