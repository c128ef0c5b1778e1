"""Finds the domains of nodes from Volcano's HyperNodes, closest first.

Level 1 is the lowest tier of all HyperNodes, level 2 the next, and so on. Invalid HyperNodes never raise; they are
skipped and reported by `Tree.problems`. Patterns run unchecked: HyperNodes are cluster-scoped, so only administrators
write them.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import label_selectors, views

_PREFIX = "hypernode/level-"
LEVELS = tuple(f"{_PREFIX}{level}" for level in range(1, 9))  # more levels than any network has tiers

Labels = Mapping[str, str]


class NameMatch(views.View, frozen=True):
    """Selects a member by its exact name."""

    name: str = ""


class PatternMatch(views.View, frozen=True):
    """Selects nodes by a pattern that matches anywhere in the name."""

    pattern: str = ""


class LabelMatch(views.View, frozen=True):
    """Selects nodes by labels."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[views.Requirement] | None = None


class Selector(views.View, frozen=True):
    """Selector of members. The API server accepts exactly one of the three."""

    exact_match: NameMatch | None = None
    regex_match: PatternMatch | None = None
    label_match: LabelMatch | None = None


class Member(views.View, frozen=True):
    """An item of spec.members: nodes, or other HyperNodes."""

    type: str = ""
    selector: Selector | None = None


class Spec(views.View, frozen=True):
    """spec of a HyperNode. The lower the tier, the closer its members are to each other."""

    tier: int = 0
    members: list[Member] | None = None


class HyperNode(views.View, frozen=True):
    """A HyperNode (topology.volcano.sh/v1alpha1)."""

    metadata: views.Identity = views.Identity()
    spec: Spec = Spec()


@functools.lru_cache(maxsize=256)
def are_among(domains: tuple[str, ...]) -> bool:
    """True if a domain key is a level of HyperNodes."""
    return any(key.startswith(_PREFIX) for key in domains)


class Tree:
    """All HyperNodes, with an index of the HyperNodes of each node. A change rebuilds the index."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called after each change of a spec."""
        self._on_change = on_change
        self._specs: dict[str, Spec] = {}
        self._index: _Index | None = None
        self._positions: dict[str, tuple[Labels, _Position]] = {}

    def upsert(self, obj: HyperNode) -> None:
        """Add or update a HyperNode."""
        self._store_specs({**self._specs, obj.metadata.name: obj.spec})

    def remove(self, obj: HyperNode) -> None:
        """Remove a deleted HyperNode."""
        self._store_specs({name: spec for name, spec in self._specs.items() if name != obj.metadata.name})

    def replace(self, objects: Sequence[HyperNode]) -> None:
        """Replace all HyperNodes."""
        self._store_specs({obj.metadata.name: obj.spec for obj in objects})

    def _store_specs(self, specs: dict[str, Spec]) -> None:
        if specs != self._specs:
            self._specs, self._index = specs, None
            self._positions.clear()
            self._on_change()

    def forget(self, node: str) -> None:
        """Remove a deleted node."""
        self._positions.pop(node, None)

    def read_values(self, node: str, labels: Labels) -> Mapping[str, str]:
        """Return the names of the node's HyperNodes by key of LEVELS. Levels without a HyperNode are left out."""
        return self._find_position(node, labels).values

    def find_problems(self, nodes: Mapping[str, Labels]) -> tuple[str, ...]:
        """Return a message for each invalid part that was skipped. `nodes` has the labels of all nodes by name."""
        messages = [*self._get_index().problems]
        for node, names in self._get_index().by_name.items():
            if node not in nodes:
                messages.append(f"HyperNode {names[0]} has the member {node}, but there is no such node; remove it")
        for name, labels in nodes.items():
            messages += self._find_position(name, labels).problems
        return tuple(messages)

    def _get_index(self) -> "_Index":
        if self._index is None:
            self._index = _build_index(self._specs)
        return self._index

    def _find_position(self, node: str, labels: Labels) -> "_Position":
        cached = self._positions.get(node)
        if cached is None or cached[0] is not labels:  # an updated node always has a new labels object
            cached = self._positions[node] = (labels, _compute_position(self._get_index(), node, labels))
        return cached[1]


class _Position(msgspec.Struct, frozen=True):
    """The HyperNodes of a node by level, and the problems found there."""

    values: Mapping[str, str]
    problems: tuple[str, ...]


class _Index(msgspec.Struct, frozen=True):
    """Index of the HyperNodes' tree and of their members."""

    order: Mapping[str, int]  # HyperNode -> its place in the order by tier, then by name
    keys: Mapping[str, str]  # HyperNode -> key of its level
    above: Mapping[str, tuple[str, ...]]  # HyperNode -> itself and its ancestors, lowest first
    by_name: Mapping[str, tuple[str, ...]]  # node -> HyperNodes that name it
    tests: tuple[tuple[str, Callable[[str, Labels], bool]], ...]  # HyperNode and its test of a node's name and labels
    problems: tuple[str, ...]


def _build_index(specs: Mapping[str, Spec]) -> _Index:
    problems: list[str] = []
    sorted_names = sorted(specs, key=lambda name: (specs[name].tier, name))
    order = {name: position for position, name in enumerate(sorted_names)}
    keys = _assign_keys(specs, problems)
    parents: dict[str, str] = {}
    claims: list[tuple[str, str]] = []
    by_name: dict[str, tuple[str, ...]] = {}
    tests: list[tuple[str, Callable[[str, Labels], bool]]] = []
    for name in order:
        for member in specs[name].members or ():
            selector = member.selector or Selector()
            if member.type == "HyperNode":
                claims += ((child, name) for child in _list_children(name, selector, specs, problems))
            elif selector.exact_match:
                earlier = by_name.get(selector.exact_match.name, ())
                by_name[selector.exact_match.name] = (*earlier, name)
            elif test := _build_test(name, selector, problems):
                tests.append((name, test))
    for child, name in claims:
        parents.setdefault(child, name)
    for child, parent in claims:
        first = parents[child]
        if parent not in _list_ancestors(first, parents):
            problems.append(
                f"HyperNode {child} is a member of {first} and of {parent}; {first} is used: remove it from {parent}"
            )
    above = {name: tuple(ancestor for ancestor in _list_ancestors(name, parents) if ancestor in keys) for name in order}
    return _Index(order=order, keys=keys, above=above, by_name=by_name, tests=tuple(tests), problems=tuple(problems))


def _assign_keys(specs: Mapping[str, Spec], problems: list[str]) -> Mapping[str, str]:
    tiers = sorted({spec.tier for spec in specs.values()})
    level = dict(zip(tiers, LEVELS, strict=False))
    if len(tiers) > len(LEVELS):
        problems.append(
            f"HyperNodes have {len(tiers)} tiers, but only {len(LEVELS)} are supported; "
            f"those from tier {tiers[len(LEVELS)]} upwards are ignored"
        )
    return {name: level[spec.tier] for name, spec in specs.items() if spec.tier in level}


def _list_children(name: str, selector: Selector, specs: Mapping[str, Spec], problems: list[str]) -> Iterator[str]:
    """Yield the HyperNode that a member names. Only one of a lower tier is valid, so there are no cycles.

    Volcano reads no other selectors here (1.15.1, pkg/scheduler/api/hyper_node_info.go, BuildHyperNodeCache).
    """
    tier = specs[name].tier
    if not selector.exact_match:
        problems.append(
            f"HyperNode {name} selects HyperNodes by a pattern or labels, which Volcano ignores; name each member by "
            "exactMatch"
        )
        return
    child = selector.exact_match.name
    if child not in specs:
        problems.append(f"HyperNode {name} has the member {child}, which does not exist; create it or remove it")
    elif specs[child].tier >= tier:
        problems.append(
            f"HyperNode {name} of tier {tier} has the member {child} of tier {specs[child].tier}, which is "
            "ignored; a member's tier must be lower"
        )
    else:
        yield child


def _list_ancestors(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    ancestor: str | None = name
    while ancestor is not None:  # ends, because each parent has a higher tier
        yield ancestor
        ancestor = parents.get(ancestor)


def _build_test(name: str, selector: Selector, problems: list[str]) -> Callable[[str, Labels], bool] | None:
    """Return a function that tests a member's name and labels, or None if the selector is invalid or empty."""
    if selector.regex_match:
        pattern = selector.regex_match.pattern
        try:
            search = re.compile(pattern).search
        except (re.error, OverflowError, RecursionError) as error:
            problems.append(
                f"HyperNode {name} has the invalid pattern {pattern[:80]!r}, so it matches nothing: {error}; correct it"
            )
            return None
        return lambda member, _: search(member) is not None
    label_match = selector.label_match
    # Volcano's GetMembers: an empty selector selects nothing
    if label_match is None or not (label_match.match_labels or label_match.match_expressions):
        return None
    required, expressions = label_match.match_labels or {}, label_match.match_expressions or ()
    for expression in expressions:
        if expression.operator not in label_selectors.OPERATORS:
            problems.append(
                f"HyperNode {name} has an invalid labelMatch, so it matches nothing: operator "
                f"{expression.operator[:80]!r} is not one of {', '.join(label_selectors.OPERATORS)}; correct it"
            )
            return None
    return lambda _, labels: (
        label_selectors.has_all(required, labels)
        and all(
            label_selectors.OPERATORS[expression.operator](labels.get(expression.key), expression.values or ())
            for expression in expressions
        )
    )


def _compute_position(index: _Index, node: str, labels: Labels) -> _Position:
    direct_parents = {*index.by_name.get(node, ()), *(name for name, test in index.tests if test(node, labels))}
    values: dict[str, str] = {}
    problems = []
    for name in sorted(direct_parents, key=index.order.__getitem__):
        chain = {index.keys[ancestor]: ancestor for ancestor in index.above[name]}
        other = next((values[key] for key, ancestor in chain.items() if values.get(key, ancestor) != ancestor), None)
        if other is None:
            values |= chain
        else:
            problems.append(
                f"node {node} is a member of the HyperNodes {other} and {name}; {other} is used: remove it from {name}"
            )
    return _Position(values=values, problems=tuple(problems))
