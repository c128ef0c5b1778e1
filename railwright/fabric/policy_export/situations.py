"""Finds when each change of an injection is made, by planning a pod in every situation that makes a difference.

A policy of the API server has no code of ours: it needs each change with a condition as a CEL expression. The changes
come from `plan`, so that no rule is written twice. A situation takes one option of each dimension below, and a change
has the condition that its situations have in common.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import facts, plan, pod_changes
from railwright.fabric.nccl import libraries
from railwright.fabric.policy import model

_CONTAINER = "rank"


class Option(msgspec.Struct, frozen=True):
    """One case of a dimension: its condition in CEL, and what a pod or its namespace then has.

    A condition about a container calls it `c`.
    """

    condition: str
    pod: Mapping[str, Any] = {}  # fields of spec
    container: Mapping[str, Any] = {}
    amounts: Mapping[str, str] = {}  # of resources
    namespace: Mapping[str, str] = {}  # labels


class Dimension(msgspec.Struct, frozen=True):
    """Something about a pod that decides about changes. Conditions read it from a variable of the policy."""

    variable: str
    definition: str  # CEL expression of the variable
    options: tuple[Option, ...]


def _test_pod(variable: str, definition: str, pod: Mapping[str, Any]) -> Dimension:
    """Return a dimension that is true or false for a pod."""
    condition = f"variables.{variable}"
    return Dimension(variable, definition, (Option(f"!{condition}"), Option(condition, pod=pod)))


def _test_container(variable: str, definition: str, **fields: Mapping[str, Any]) -> Dimension:
    """Return a dimension that is true or false for a container; the variable has the names of those with True."""
    condition = f"c.name in variables.{variable}"
    return Dimension(
        variable,
        f"object.spec.containers.filter(c, {definition}).map(c, c.name)",
        (Option(f"!({condition})"), Option(condition, **fields)),
    )


def _test_names(prefixes: Sequence[str]) -> str:
    """Return the condition that a container sets a variable with one of these prefixes."""
    tests = " || ".join(f"e.name.startsWith('{prefix}')" for prefix in prefixes)
    return f"c.?env.orValue([]).exists(e, {tests})"


def _set_variable(prefix: str) -> dict[str, Any]:
    return {"env": [{"name": f"{prefix}RAILWRIGHT", "value": ""}]}


def _test_library(library: str, prefixes: Sequence[str]) -> Dimension:
    """Return the dimension of a library: whether the container sets a variable of it."""
    name = f"using{library.replace(' ', '')}"
    return _test_container(name, _test_names(prefixes), container=_set_variable(prefixes[0]))


def _test_ucx() -> Dimension:
    """Return the dimension of UCX: whether the container sets a variable of NIXL, only others of UCX, or none."""
    nixl, ucx = libraries.NIXL_PREFIXES, libraries.PREFIXES["UCX"]
    mark = f"{_test_names(nixl)} ? '/nixl' : {_test_names(ucx)} ? '/ucx' : ''"
    options = (
        Option("c.name + '' in variables.usingUCX"),
        Option("c.name + '/ucx' in variables.usingUCX", container=_set_variable("UCX_")),
        Option("c.name + '/nixl' in variables.usingUCX", container=_set_variable(nixl[0])),
    )
    return Dimension("usingUCX", f"object.spec.containers.map(c, c.name\n  + ({mark}))", options)


NAMES = "environmentNames"  # variable with the names of the fabric's environment variables
_LEVEL = f"namespaceObject.metadata.?labels[?'{names.POD_SECURITY_ENFORCE}'].orValue('privileged')"
DIMENSIONS: tuple[Dimension, ...] = (
    Dimension(
        "podSecurity",
        f"{_LEVEL} in ['privileged', 'baseline']\n? {_LEVEL}\n: 'restricted'",
        tuple(
            Option(f"variables.podSecurity == '{level}'", namespace={names.POD_SECURITY_ENFORCE: level})
            for level in ("privileged", "baseline", "restricted")
        ),
    ),
    _test_pod("hostNetwork", "object.spec.?hostNetwork.orValue(false)", {"hostNetwork": True}),
    _test_pod("hostIPC", "object.spec.?hostIPC.orValue(false)", {"hostIPC": True}),
    _test_container(
        "withHostDev",
        "c.?volumeMounts.orValue([]).exists(m, m.mountPath == '/dev'\n"
        "  && object.spec.?volumes.orValue([]).exists(v, v.name == m.name && v.?hostPath.?path.orValue('') == '/dev'))",
        pod={"volumes": [{"name": "host-dev", "hostPath": {"path": "/dev"}}]},
        container={"volumeMounts": [{"name": "host-dev", "mountPath": "/dev"}]},
    ),
    _test_container(  # huge pages need one of these
        "withCPUOrMemory",
        "['cpu', 'memory'].exists(r,\n  c.?resources.?limits[?r].hasValue() || c.?resources.?requests[?r].hasValue())",
        amounts={"cpu": "1"},
    ),
    _test_container(  # an entry of `env` would override what it brings
        "withEnvFrom",
        f"c.?envFrom.orValue([]).exists(s,\n  variables.{NAMES}.exists(n, n.startsWith(s.?prefix.orValue(''))))",
        container={"envFrom": [{}]},
    ),
    *(_test_library(library, prefixes) for library, prefixes in libraries.PREFIXES.items() if library != "UCX"),
    _test_ucx(),
)
_ALL = frozenset(itertools.product(*[range(len(dimension.options)) for dimension in DIMENSIONS]))
Situation = tuple[int, ...]


class ConditionalChange(msgspec.Struct, frozen=True):
    """A change of a pod with one container, and the CEL expressions that must all be true for it.

    `is_separable` is False if its situations are no combination of options, so that it has no such conditions.
    """

    change: pod_changes.Change
    conditions: tuple[str, ...]
    is_separable: bool


def explore(policy: model.Policy, name: str) -> tuple[ConditionalChange, ...]:
    """Return the changes of the pods of a fabric, in the order of a plan.

    Situations in which a pod is refused count for no condition: its pod-security level forbids what it would get, and
    the API server refuses it by itself.
    """
    policy = _open_to_all(policy, name)
    changes: dict[tuple[type, bytes], pod_changes.Change] = {}
    order: list[tuple[type, bytes]] = []
    situations: dict[tuple[type, bytes], list[Situation]] = {}
    planned: set[Situation] = set()
    for situation in sorted(_ALL):
        outcome = _plan(policy, name, situation)
        if not isinstance(outcome, pod_changes.Injection):
            continue
        planned.add(situation)
        position = 0
        for change in outcome.changes:
            if isinstance(change, pod_changes.SetAnnotation) and change.key == names.INJECTION:
                continue  # the record differs in every situation, and lists what each pod had before
            key = (type(change), msgspec.json.encode(change))
            if key not in changes:  # after the change that it follows in this plan
                changes[key] = change
                order.insert(position, key)
            position = order.index(key) + 1
            situations.setdefault(key, []).append(situation)
    return tuple(_find_conditions(changes[key], situations[key], planned) for key in order)


def _open_to_all(policy: model.Policy, name: str) -> model.Policy:
    """Return the policy with this fabric alone, for pods of any namespace."""
    fabric = msgspec.structs.replace(policy.document.fabrics[name], namespaces=model.LabelSelector())
    document = msgspec.structs.replace(policy.document, fabrics={name: fabric}, default_fabric=None)
    return model.Policy(document, policy.digest)


def _plan(policy: model.Policy, name: str, situation: Situation) -> plan.Outcome:
    options = [dimension.options[index] for dimension, index in zip(DIMENSIONS, situation, strict=True)]
    amounts = {policy.document.accelerators[0]: "1"}
    container: dict[str, Any] = {"name": _CONTAINER, "resources": {"requests": amounts, "limits": amounts}}
    for option in options:
        for field, entries in option.container.items():
            container[field] = [*container.get(field, ()), *entries]
    spec: dict[str, Any] = {"containers": [container]}
    labels: dict[str, str] = {}
    for option in options:
        spec |= option.pod
        amounts |= option.amounts
        labels |= option.namespace
    pod = msgspec.convert({"metadata": {"labels": {names.FABRIC: name}}, "spec": spec}, views.Pod)
    return plan.plan(pod, policy, facts.ClusterFacts(namespace="", namespace_labels=labels))


def _find_conditions(
    change: pod_changes.Change, group: Sequence[Situation], possible: Collection[Situation]
) -> ConditionalChange:
    """Return a change with the condition of each dimension that decides which of the possible situations have it."""
    chosen = [{situation[index] for situation in group} for index in range(len(DIMENSIONS))]
    conditions = []
    for index, dimension in enumerate(DIMENSIONS):
        if {situation[index] for situation in possible} != chosen[index]:
            expressions = [dimension.options[option].condition for option in sorted(chosen[index])]
            conditions.append(expressions[0] if len(expressions) == 1 else f"({' || '.join(expressions)})")
    combined = sum(_has_all(chosen, situation) for situation in possible)
    return ConditionalChange(change, tuple(conditions), combined == len(group))


def _has_all(chosen: Sequence[set[int]], situation: Situation) -> bool:
    return all(option in options for options, option in zip(chosen, situation, strict=True))
