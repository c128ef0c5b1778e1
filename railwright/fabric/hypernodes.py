"""Finds the domains of nodes from Volcano's HyperNodes, closest first.

Level 1 is the lowest tier of all HyperNodes, level 2 the next, and so on. Invalid HyperNodes never raise; they are
skipped and reported by `Tree.find_problems`. Patterns run unchecked: HyperNodes are cluster-scoped, so only
administrators write them.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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
def has_level(domains: tuple[str, ...]) -> bool:
    """True if one of these domain keys stands for a level of HyperNodes, and not for a label of nodes."""
    return any(key.startswith(_PREFIX) for key in domains)


class Tree:
    """All HyperNodes, with an index of the HyperNodes of each node. A change rebuilds the index."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called after each change of a spec."""
        self._on_change = on_change
        self._specs: dict[str, Spec] = {}
        self._index: _Index | None = None
        self._memberships: dict[str, tuple[Labels, _Membership]] = {}

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
            self._memberships.clear()
            self._on_change()

    def forget_node(self, node: str) -> None:
        """Remove the cached HyperNodes of a deleted node."""
        self._memberships.pop(node, None)

    def find_hypernodes(self, node: str, labels: Labels) -> Mapping[str, str]:
        """Return the names of the HyperNodes that contain the node, by the key of their level (LEVELS).

        Levels at which the node is in no HyperNode are left out.
        """
        return self._find_membership(node, labels).values

    def find_problems(self, nodes: Mapping[str, Labels]) -> tuple[str, ...]:
        """Return a message for each invalid part that was skipped. `nodes` has the labels of all nodes by name."""
        index = self._get_index()
        absent = [
            f"HyperNode {names[0]} has the member {node}, but there is no such node; remove it"
            for node, names in index.by_name.items()
            if node not in nodes
        ]
        memberships = [self._find_membership(name, labels) for name, labels in nodes.items()]
        return (*index.problems, *absent, *(problem for membership in memberships for problem in membership.problems))

    def _get_index(self) -> "_Index":
        if self._index is None:
            self._index = _build_index(self._specs)
        return self._index

    def _find_membership(self, node: str, labels: Labels) -> "_Membership":
        cached = self._memberships.get(node)
        if cached is None or cached[0] is not labels:  # an updated node always has a new labels object
            cached = self._memberships[node] = (labels, _compute_membership(self._get_index(), node, labels))
        return cached[1]


class _Membership(NamedTuple):
    """The HyperNodes that contain a node, by key of their level.

    `problems` are messages about a second HyperNode of a level, which is ignored.
    """

    values: Mapping[str, str]
    problems: Sequence[str]


class _Index(NamedTuple):
    """Index of the HyperNodes' tree and of their members, in the order of tiers, then of names."""

    order: Mapping[str, int]  # HyperNode -> its place in this order
    above: Mapping[str, Mapping[str, str]]  # HyperNode -> itself and its ancestors by the key of their level
    by_name: Mapping[str, Sequence[str]]  # node -> HyperNodes that name it
    tests: Sequence[tuple[str, Callable[[str, Labels], bool]]]  # HyperNode and its test of a node's name and labels
    problems: Sequence[str]


def _build_index(specs: Mapping[str, Spec]) -> _Index:
    tiers = sorted({spec.tier for spec in specs.values()})
    levels = dict(zip(tiers, LEVELS, strict=False))
    problems: list[str] = []
    if len(tiers) > len(LEVELS):
        problems.append(
            f"HyperNodes have {len(tiers)} tiers, but only {len(LEVELS)} are supported; "
            f"those from tier {tiers[len(LEVELS)]} upwards are ignored"
        )
    names = sorted(specs, key=lambda name: (specs[name].tier, name))
    children: list[tuple[str, str]] = []  # with the HyperNode that names it
    by_name: dict[str, list[str]] = {}
    tests: list[tuple[str, Callable[[str, Labels], bool]]] = []
    for name in names:
        for member in specs[name].members or ():
            selector, problem = member.selector or Selector(), ""
            if member.type == "HyperNode":
                problem = _check_hypernode_member(name, selector, specs)
                if selector.exact_match and not problem:
                    children.append((selector.exact_match.name, name))
            elif selector.exact_match:
                by_name.setdefault(selector.exact_match.name, []).append(name)
            elif not (problem := _check_selector(name, selector)):
                # compiled once: `re` itself forgets patterns if there are more than 512
                pattern = re.compile(selector.regex_match.pattern) if selector.regex_match else None
                tests.append((name, functools.partial(_selects_node, selector.label_match or LabelMatch(), pattern)))
            if problem:
                problems.append(problem)
    lines = _list_ancestors(names, children, problems)
    above = {
        name: {levels[specs[other].tier]: other for other in line if specs[other].tier in levels}
        for name, line in lines.items()
    }
    return _Index({name: place for place, name in enumerate(names)}, above, by_name, tests, problems)


def _list_ancestors(
    names: Sequence[str], children: Sequence[tuple[str, str]], problems: list[str]
) -> Mapping[str, Sequence[str]]:
    """Return each HyperNode with its ancestors, lowest first. Of several parents only the first counts."""
    parents = dict(reversed(children))
    lines = {name: [name] for name in names}
    for name in reversed(names):  # a parent has a higher tier, so that its ancestors are known
        lines[name] += lines[parents[name]] if name in parents else []
    for child, name in children:
        first = parents[child]
        if name not in lines[child]:
            problems.append(
                f"HyperNode {child} is a member of {first} and of {name}; {first} is used: remove it from {name}"
            )
    return lines


def _check_hypernode_member(name: str, selector: Selector, specs: Mapping[str, Spec]) -> str:
    """Return why a HyperNode cannot be a member of the HyperNode `name`, "" if it can.

    The member's tier must be lower, which rules out cycles. Volcano reads only exact names of member HyperNodes
    (1.15.1, pkg/scheduler/api/hyper_node_info.go, BuildHyperNodeCache).
    """
    tier = specs[name].tier
    if not selector.exact_match:
        selects = f"HyperNode {name} selects HyperNodes by a pattern or labels, which Volcano ignores"
        return f"{selects}; name each member by exactMatch"
    child = selector.exact_match.name
    if child not in specs:
        return f"HyperNode {name} has the member {child}, which does not exist; create it or remove it"
    if specs[child].tier >= tier:
        has = f"HyperNode {name} of tier {tier} has the member {child} of tier {specs[child].tier}"
        return f"{has}, which is ignored; a member's tier must be lower"
    return ""


def _check_selector(name: str, selector: Selector) -> str:
    """Return why a pattern or an operator of a selector is invalid; "" if it is valid."""
    if selector.regex_match:
        try:
            re.compile(selector.regex_match.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            pattern = f"{selector.regex_match.pattern[:80]!r}"
            return f"HyperNode {name} has the invalid pattern {pattern}, so it matches nothing: {error}; correct it"
    for expression in (selector.label_match and selector.label_match.match_expressions) or ():
        if expression.operator not in label_selectors.OPERATORS:
            return (
                f"HyperNode {name} has an invalid labelMatch, so it matches nothing: operator "
                f"{expression.operator[:80]!r} is not one of {', '.join(label_selectors.OPERATORS)}; correct it"
            )
    return ""


def _selects_node(match: LabelMatch, pattern: re.Pattern[str] | None, node: str, labels: Labels) -> bool:
    """True if the pattern matches a node's name, or, without a pattern, the label selector matches its labels.

    An empty selector selects nothing (Volcano's GetMembers).
    """
    if pattern is not None:
        return pattern.search(node) is not None
    required, expressions = match.match_labels or {}, match.match_expressions or ()
    return bool(required or expressions) and (
        label_selectors.has_all_labels(required, labels)
        and all(label_selectors.OPERATORS[row.operator](labels.get(row.key), row.values or ()) for row in expressions)
    )


def _compute_membership(index: _Index, node: str, labels: Labels) -> _Membership:
    own = {*index.by_name.get(node, ()), *(name for name, test in index.tests if test(node, labels))}
    values: dict[str, str] = {}
    problems = []
    for name in sorted(own, key=index.order.__getitem__):
        line = index.above[name]
        other = next((values[key] for key, ancestor in line.items() if values.get(key, ancestor) != ancestor), None)
        if other is None:
            values |= line
        else:
            problems.append(
                f"node {node} is a member of the HyperNodes {other} and {name}; {other} is used: remove it from {name}"
            )
    return _Membership(values, problems)
