"""The webhook entries of manifests/base/admission.yaml, limited to the fields whose drift breaks admission.

A test compares the table with the manifest. Match conditions are compared by name, because their text is CEL.
"""

from collections.abc import Mapping

import msgspec

from railwright.cluster import installed_names
from railwright.fabric import names
from railwright.fabric.workloads import registry

Expression = tuple[str, str, tuple[str, ...]]  # key, operator, values


class Entry(msgspec.Struct, frozen=True):
    """One entry. `resources` holds pairs of GROUP/RESOURCE and operation that its rules must include."""

    path: str
    closed: bool  # failurePolicy Fail
    seconds: int  # timeoutSeconds
    resources: frozenset[tuple[str, str]]
    objects: tuple[Expression, ...] = ()
    namespaces: tuple[Expression, ...] = ()
    conditions: tuple[str, ...] = ()
    mutating: bool = True
    reinvoked: bool = True


EXCLUDED = ("kube-system", installed_names.NAMESPACE)
PODS = "pods.railwright.io"  # entry for pods that have the label themselves
NAME_LABEL = "kubernetes.io/metadata.name"
_LABELLED: tuple[Expression, ...] = ((names.FABRIC, "Exists", ()), (names.FABRIC, "NotIn", (names.FABRIC_NONE,)))
_UNLABELLED: tuple[Expression, ...] = ((names.FABRIC, "DoesNotExist", ()),)
_PODS = frozenset({("/pods", "CREATE")})
_WORKLOADS = frozenset(f"{kind.group}/{kind.plural}" for kind in registry.INJECTED_KINDS)
_CREATED = frozenset((workload, "CREATE") for workload in _WORKLOADS)
_CHANGED = frozenset((workload, operation) for workload in _WORKLOADS for operation in ("CREATE", "UPDATE"))
_POLICIES = ("/configmaps", f"{names.DOMAIN}/{names.POLICY_PLURAL}")

ENTRIES: Mapping[str, Entry] = {
    PODS: Entry(
        "/mutate/pods",
        closed=True,
        seconds=5,
        resources=_PODS,
        objects=_LABELLED,
        conditions=("is-no-mirror-pod",),
    ),
    "namespaced-pods.railwright.io": Entry(
        "/mutate/pods",
        closed=True,
        seconds=5,
        resources=_PODS,
        objects=_UNLABELLED,
        namespaces=_LABELLED,
        conditions=("is-no-mirror-pod", "requests-devices"),
    ),
    "workloads.railwright.io": Entry(
        "/mutate/workloads", closed=True, seconds=5, resources=_CREATED, objects=((names.FABRIC, "Exists", ()),)
    ),
    "templates.railwright.io": Entry(
        "/mutate/workloads", closed=False, seconds=2, resources=_CHANGED, conditions=("new-or-changed", "opts-in")
    ),
    "namespaced-workloads.railwright.io": Entry(
        "/mutate/workloads",
        closed=False,
        seconds=2,
        resources=_CHANGED,
        objects=_UNLABELLED,
        namespaces=_LABELLED,
        conditions=("new-or-changed",),
    ),
    "bindings.railwright.io": Entry(
        "/mutate/bindings",
        closed=False,
        seconds=2,
        resources=frozenset({("/pods/binding", "CREATE")}),
        reinvoked=False,
    ),
    "policy.railwright.io": Entry(
        "/validate/policy",
        closed=False,
        seconds=5,
        resources=frozenset((kind, operation) for kind in _POLICIES for operation in ("CREATE", "UPDATE")),
        conditions=("is-the-policy",),
        mutating=False,
        reinvoked=False,
    ),
}
