"""Volcano's HyperNodes as domains: which of them a node is in, the closest first.

Owns the tree that the objects describe and the keys its levels are known by: level 1 is the lowest tier any HyperNode
has, level 2 the next, and so on. Nothing wrong with the objects stops it: what cannot be is left out and told. Knows
no rails and no policy. Patterns are an administrator's (HyperNodes have no namespace) and are run as they are.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import views, workload_views
from railwright.fabric.policy import model, selectors

_PREFIX = "hypernode/level-"
LEVELS = tuple(f"{_PREFIX}{level}" for level in range(1, 9))  # more than any network has tiers

Labels = Mapping[str, str]


class NameMatch(views.View, frozen=True):
    """A member by its name."""

    name: str = ""


class PatternMatch(views.View, frozen=True):
    """Members by a pattern that is found anywhere in their name."""

    pattern: str = ""


class LabelMatch(views.View, frozen=True):
    """Nodes by a label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[views.Requirement] | None = None


class Selector(views.View, frozen=True):
    """Which members; the API server takes exactly one of the three."""

    exact_match: NameMatch | None = None
    regex_match: PatternMatch | None = None
    label_match: LabelMatch | None = None


class Member(views.View, frozen=True):
    """One of spec.members: nodes, or other HyperNodes."""

    type: str = ""
    selector: Selector | None = None


class Spec(views.View, frozen=True):
    """spec of a HyperNode; the lower the tier, the closer its members are to each other."""

    tier: int = 0
    members: list[Member] | None = None


class HyperNode(views.View, frozen=True):
    """A HyperNode (topology.volcano.sh/v1alpha1)."""

    metadata: workload_views.Identity = workload_views.Identity()
    spec: Spec = Spec()


@functools.lru_cache(maxsize=256)
def are_among(domains: tuple[str, ...]) -> bool:
    """True when any of these domain keys is a level of HyperNodes."""
    return any(key.startswith(_PREFIX) for key in domains)


class Tree:
    """The HyperNodes there are, and every node's place among them; grown anew only after they changed."""

    def __init__(self) -> None:
        self._specs: dict[str, Spec] = {}
        self._grown: _Grown | None = None
        self._places: dict[str, tuple[Labels, _Found]] = {}

    def upsert(self, obj: HyperNode) -> bool:
        """A HyperNode appeared or changed; False where only its status did."""
        if self._specs.get(obj.metadata.name) == obj.spec:
            return False
        self._specs[obj.metadata.name] = obj.spec
        self._cut()
        return True

    def remove(self, name: str) -> bool:
        """A HyperNode is gone; False where it was not known."""
        known = self._specs.pop(name, None) is not None
        if known:
            self._cut()
        return known

    def replace(self, objects: Sequence[HyperNode]) -> bool:
        """The full list; True if it is another than before."""
        specs = {obj.metadata.name: obj.spec for obj in objects}
        if specs == self._specs:
            return False
        self._specs = specs
        self._cut()
        return True

    def forget(self, node: str) -> None:
        """A node is gone."""
        self._places.pop(node, None)

    def values(self, node: str, labels: Labels) -> Mapping[str, str]:
        """The name of the node's HyperNode by key of LEVELS, for the levels where it has one."""
        return self._found(node, labels).values

    def problems(self, nodes: Mapping[str, Labels]) -> tuple[str, ...]:
        """What was read over, a sentence each; `nodes` are the labels of the nodes there are."""
        told = [*self._tree().problems, *_missing(self._tree(), nodes)]
        for name, labels in nodes.items():
            told += self._found(name, labels).problems
        return tuple(told)

    def _tree(self) -> "_Grown":
        if self._grown is None:
            self._grown = _grow(self._specs)
        return self._grown

    def _found(self, node: str, labels: Labels) -> "_Found":
        known = self._places.get(node)
        if known is None or known[0] is not labels:  # a changed node has other labels, if only another copy of them
            known = self._places[node] = (labels, _find(self._tree(), node, labels))
        return known[1]

    def _cut(self) -> None:
        self._grown = None
        self._places.clear()


class _Found(msgspec.Struct, frozen=True):
    """One node's place."""

    values: Mapping[str, str]
    problems: tuple[str, ...]


class _Grown(msgspec.Struct, frozen=True):
    """The tree, and how nodes are found to be in it."""

    order: Mapping[str, int]  # of the HyperNodes: by tier, then by name
    keys: Mapping[str, str]  # HyperNode -> its level's key
    above: Mapping[str, tuple[str, ...]]  # HyperNode -> itself and what it is in, the lowest first
    by_name: Mapping[str, tuple[str, ...]]  # node -> HyperNodes that name it
    tests: tuple[tuple[str, Callable[[str, Labels], bool]], ...]
    problems: tuple[str, ...]


def _grow(specs: Mapping[str, Spec]) -> _Grown:
    problems: list[str] = []
    order = {name: at for at, name in enumerate(sorted(specs, key=lambda each: (specs[each].tier, each)))}
    keys = _keys(specs, problems)
    parents: dict[str, str] = {}
    claims: list[tuple[str, str]] = []
    by_name: dict[str, tuple[str, ...]] = {}
    tests: list[tuple[str, Callable[[str, Labels], bool]]] = []
    for name in order:
        for member in specs[name].members or ():
            selector = member.selector or Selector()
            if member.type == "HyperNode":
                claims += ((child, name) for child in _children(name, selector, specs, problems))
            elif selector.exact_match:
                listed = by_name.get(selector.exact_match.name, ())
                by_name[selector.exact_match.name] = (*listed, name)
            elif test := _test(name, selector, problems):
                tests.append((name, test))
    for child, name in claims:
        parents.setdefault(child, name)
    problems += _disputed(claims, parents)
    above = {name: tuple(each for each in _climb(name, parents) if each in keys) for name in order}
    return _Grown(order=order, keys=keys, above=above, by_name=by_name, tests=tuple(tests), problems=tuple(problems))


def _keys(specs: Mapping[str, Spec], problems: list[str]) -> Mapping[str, str]:
    tiers = sorted({spec.tier for spec in specs.values()})
    level = dict(zip(tiers, LEVELS, strict=False))
    if len(tiers) > len(LEVELS):
        problems.append(
            f"HyperNodes have {len(tiers)} tiers; those from tier {tiers[len(LEVELS)]} upwards are not looked at"
        )
    return {name: level[spec.tier] for name, spec in specs.items() if spec.tier in level}


def _children(name: str, selector: Selector, specs: Mapping[str, Spec], problems: list[str]) -> Iterator[str]:
    """The HyperNodes a member speaks of: only those of a lower tier can be, so that nothing is above itself."""
    tier = specs[name].tier
    if selector.exact_match:
        child = selector.exact_match.name
        if child not in specs:
            problems.append(f"HyperNode {name} has the member {child}, which does not exist; create it or take it out")
        elif specs[child].tier >= tier:
            problems.append(
                f"HyperNode {name} of tier {tier} has the member {child} of tier {specs[child].tier}, which is left "
                "out; a member's tier has to be lower"
            )
        else:
            yield child
    elif test := _test(name, selector, problems):
        yield from sorted(each for each, spec in specs.items() if spec.tier < tier and test(each, {}))


def _disputed(claims: Sequence[tuple[str, str]], parents: Mapping[str, str]) -> Iterator[str]:
    for child, parent in claims:
        first = parents[child]
        if parent not in _climb(first, parents):
            yield f"HyperNode {child} is a member of {first} and of {parent}; {first} counts: take it out of the other"


def _climb(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    at: str | None = name
    while at is not None:  # it ends: a parent's tier is the higher one
        yield at
        at = parents.get(at)


def _test(name: str, selector: Selector, problems: list[str]) -> Callable[[str, Labels], bool] | None:
    """Whether a name with labels is a member; None where the selector cannot be read or selects nothing."""
    if selector.regex_match:
        pattern = selector.regex_match.pattern
        try:
            search = re.compile(pattern).search
        except (re.error, OverflowError, RecursionError) as error:
            problems.append(f"HyperNode {name} has the pattern {pattern[:80]!r}, which nothing matches here: {error}")
            return None
        return lambda each, _: search(each) is not None
    given = selector.label_match
    if given is None or not (given.match_labels or given.match_expressions):  # Volcano's GetMembers: selects nothing
        return None
    tree = {
        "matchLabels": given.match_labels or {},
        "matchExpressions": [
            {"key": each.key, "operator": each.operator, "values": each.values or ()}
            for each in given.match_expressions or ()
        ],
    }
    try:
        wanted = msgspec.convert(tree, model.LabelSelector)
    except msgspec.ValidationError as error:
        problems.append(f"HyperNode {name} has a labelMatch that cannot be read, so that nothing matches it: {error}")
        return None
    return lambda _, labels: selectors.matches(wanted, labels)


def _find(tree: _Grown, node: str, labels: Labels) -> _Found:
    inside = {*tree.by_name.get(node, ()), *(name for name, test in tree.tests if test(node, labels))}
    values: dict[str, str] = {}
    problems = []
    for name in sorted(inside, key=tree.order.__getitem__):
        chain = {tree.keys[each]: each for each in tree.above[name]}
        other = next((values[key] for key, each in chain.items() if values.get(key, each) != each), None)
        if other is None:
            values |= chain
        else:
            problems.append(f"node {node} is a member of the HyperNodes {other} and {name}; {other} counts")
    return _Found(values=values, problems=tuple(problems))


def _missing(tree: _Grown, nodes: Collection[str]) -> Iterable[str]:
    for node, names in tree.by_name.items():
        if node not in nodes:
            yield f"HyperNode {names[0]} has the member {node}, and there is no such node"
