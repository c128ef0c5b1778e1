"""Writes MutatingAdmissionPolicies, with which the API server changes pods as the webhook would, without any server.

`situations` finds each change with its condition. Here is what an expression (CEL, admissionregistration.k8s.io/v1) can
say of them, and what it cannot: that is a `Gap`. What a pod itself asks for and the policies cannot do is refused by a
ValidatingAdmissionPolicy, so that no pod silently runs without its fabric.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.injection import opt_in, pod_changes
from railwright.fabric.policy import model
from railwright.fabric.policy_export import expressions, situations
from railwright.fabric.workloads import volcano

_GROUP = "admissionregistration.k8s.io/v1"
NOTES = (
    "Pods get no record (annotation railwright.io/injection), so `railwright explain` cannot give reasons for them.",
    "Only pods are changed. Templates of workloads do not get the devices: quotas and queues do not count them.",
    "Only containers with an accelerator, or with a claim, are changed. Pods without one stay as they are.",
    (
        "Ranks that ssh starts (MPI) need the file /etc/nccl.conf: set nccl.delivery: both. The file has all variables,"
        " also those that the container sets to another value."
    ),
    "There are no Events, no lint warnings, and no check that devices are offered by some node.",
    "Nothing keeps the state of gangs: placement needs the extender.",
)
"""What no exported policy can do."""


class Gap(msgspec.Struct, frozen=True):
    """Something in the policy that cannot be expressed."""

    path: str
    value: str
    problem: str
    fix: str
    is_left_out: bool  # the whole fabric is

    def format(self) -> str:
        """Return one line for people."""
        effect = "the fabric is left out" if self.is_left_out else "the rest is exported"
        return f"{self.path}: {self.value}: {self.problem}; {effect}: {self.fix}"


class Export(msgspec.Struct, frozen=True):
    """The objects to apply, and what they cannot do of the policy."""

    objects: tuple[Mapping[str, Any], ...]
    gaps: tuple[Gap, ...]


def export(policy: model.Policy) -> Export:
    """Return the admission policies of all fabrics."""
    objects: list[Mapping[str, Any]] = []
    gaps = list(_find_role_gaps(policy.document))
    for name in policy.document.fabrics:
        fabric_gaps, explored = _examine(policy, name)
        gaps += fabric_gaps
        if explored is not None:
            objects += _build_objects(policy.document, name, explored)
    return Export((*objects, *_refuse_unknown(policy.document)) if objects else (), tuple(gaps))


# --- what cannot be expressed ---------------------------------------------------------------------------------

_WEBHOOK = "install the webhook for it"


def _find_rail_key(fabric: model.Fabric, key: str) -> tuple[str, object]:
    """Return path and value of a key of the first rail that sets it."""
    for index, rail in enumerate(fabric.rails):
        if (value := getattr(rail, key)) is not None:
            return f"rails[{index}].{key}", value
    return "rails", len(fabric.rails)


class _Inexpressible(msgspec.Struct, frozen=True):
    """A kind of change that no expression makes, and the key of the policy that causes it."""

    find_key: Callable[[model.Fabric], tuple[str, object]]
    problem: str
    fix: str = _WEBHOOK
    is_left_out: bool = True


_CLAIMS = _Inexpressible(
    lambda fabric: ("claims.deviceClass", fabric.claims.device_class if fabric.claims else ""),
    "no expression creates a ResourceClaimTemplate",
)
INEXPRESSIBLE: Mapping[type[pod_changes.Change], _Inexpressible] = {
    pod_changes.SetNetworks: _Inexpressible(
        lambda fabric: _find_rail_key(fabric, "network"),
        "no expression merges the networks of the rails into the annotation that Multus reads",
    ),
    pod_changes.SetClaim: _CLAIMS,
    pod_changes.UseClaim: _CLAIMS,
    pod_changes.RemoveClaims: _CLAIMS,
    pod_changes.RemoveResource: _CLAIMS,
    pod_changes.UnsetEnv: _CLAIMS,  # a list of devices that is written at binding
    pod_changes.SetLabel: _CLAIMS,  # of templates only
    pod_changes.SetCommand: _Inexpressible(
        lambda _: ("sourceScript", "set"), "no expression puts a script before the command of a container"
    ),
    pod_changes.AddInitContainer: _Inexpressible(
        lambda _: ("preflight.enabled", "true"),
        "the init container depends on the resources and the privileges of each pod's containers",
        "add the container to the pod templates, or set preflight.enabled: false",
        is_left_out=False,
    ),
}


_OF_WEBHOOK = (
    ("wholeNode", "whole_node", "no expression adds up the accelerators of a pod"),
    ("networkAnnotation", "network_annotation", "no expression merges the rails into the annotation"),
    ("libraryPath", "library_path", "no expression extends the value of a container"),
    ("sourceScript", "source_script", "no expression puts a script before the command of a container"),
    ("sidecars", "sidecars", "no expression finds out which sidecars a pod has already"),
)
"""Keys of a fabric that no exported policy can follow: the key, its field, and why."""


def _examine(policy: model.Policy, name: str) -> tuple[list[Gap], expressions.Changes | None]:
    """Return what of a fabric cannot be expressed, and its changes unless it is left out."""
    fabric = policy.document.fabrics[name]
    base = f"fabrics.{name}"
    if (fabric.mode or policy.document.mode) == "audit":
        path = f"{base}.mode" if fabric.mode else "mode"
        return [Gap(path, "audit", "no expression reports a change without making it", "set enforce", True)], None
    if fabric.rails_per_pod == "proportional":
        problem = "the device list depends on the number of GPUs of each pod"
        return [Gap(f"{base}.railsPerPod", "proportional", problem, f"{_WEBHOOK}, or set all", True)], None
    if fabric.nvlink and fabric.nvlink.compute_domain == "create":
        problem = "no expression creates the ComputeDomain of a gang"
        return [Gap(f"{base}.nvlink.computeDomain", "create", problem, f"{_WEBHOOK}, or set none", True)], None
    if of_webhook := _find_key_of_webhook(fabric, base):
        return [of_webhook], None
    explored = situations.explore(policy, name)
    gaps: dict[Gap, None] = {}
    for change in explored:
        if row := INEXPRESSIBLE.get(type(change.change)):
            key, value = row.find_key(fabric)
            gaps[Gap(f"{base}.{key}", str(value), row.problem, row.fix, row.is_left_out)] = None
        elif fabric.claims is None and _is_completed_at_binding(change.change):
            shapes = ", ".join(shape.name for shape in policy.document.node_shapes)
            problem = f"the devices of fabric {name} differ between node shapes, and the list is written at binding"
            fix = f"{_WEBHOOK}, or set NCCL_IB_HCA in {base}.env to a value that is right on every node"
            gaps[Gap("nodeShapes", shapes, problem, fix, True)] = None
    if fabric.namespaces != model.LabelSelector():
        labels = [
            *fabric.namespaces.match_labels,
            *(expression.key for expression in fabric.namespaces.match_expressions),
        ]
        problem = "pods of other namespaces are left as they are, instead of being rejected"
        fix = "none needed, unless such pods use the label"
        gaps[Gap(f"{base}.namespaces", ", ".join(labels), problem, fix, False)] = None
    if not any(gap.is_left_out for gap in gaps) and not all(change.is_separable for change in explored):
        gaps[Gap(base, name, "its changes depend on each other's conditions", _WEBHOOK, True)] = None
    return [*gaps], None if any(gap.is_left_out for gap in gaps) else explored


def _find_key_of_webhook(fabric: model.Fabric, base: str) -> Gap | None:
    for key, attribute, problem in _OF_WEBHOOK:
        if getattr(fabric, attribute):
            return Gap(f"{base}.{key}", "set", problem, f"{_WEBHOOK}, or remove the key", True)
    if source := next((mount.source for mount in fabric.mounts.config_maps if mount.source), ""):
        key, problem = f"{base}.mounts.configMaps", "no expression copies a ConfigMap to the pod's namespace"
        return Gap(key, source, problem, f"{_WEBHOOK}, or remove namespace and copy it yourself", True)
    return None


def _is_completed_at_binding(change: pod_changes.Change) -> bool:
    return isinstance(change, pod_changes.SetAnnotation) and names.NOT_ALLOCATED in change.value


def _find_role_gaps(document: model.FabricPolicy) -> Iterator[Gap]:
    if document.roles.launchers != "inject-if-accelerated":
        problem = "launchers are not told apart: they get the fabric if they request an accelerator"
        yield Gap(
            "roles.launchers", document.roles.launchers, problem, "set label railwright.io/fabric per task", False
        )
    for task, decision in document.roles.volcano_tasks.items():
        if decision == "always":
            problem = "pods of the task get the fabric only if they request an accelerator"
            yield Gap(f"roles.volcanoTasks.{task}", decision, problem, "request an accelerator in the task", False)


# --- objects --------------------------------------------------------------------------------------------------


def _build_objects(
    document: model.FabricPolicy, name: str, explored: expressions.Changes
) -> Iterator[Mapping[str, Any]]:
    """Yield the policy that changes the pods of a fabric, the one that refuses pods, and their bindings."""
    writer = expressions.Expressions(document, document.fabrics[name], explored)
    object_name = _name_object(name)
    variables = [{"name": variable, "expression": text} for variable, text in writer.list_variables()]
    never = [task for task, decision in document.roles.volcano_tasks.items() if decision == "never"]
    conditions = [
        ("is-no-mirror-pod", f"!({expressions.quote(opt_in.MIRROR)} in object.metadata.?annotations.orValue({{}}))")
    ]
    if never:
        task = f"object.metadata.?labels[?{expressions.quote(volcano.TASK)}].orValue('')"
        conditions.append(("is-no-excluded-task", f"!({task} in [{', '.join(map(expressions.quote, never))}])"))
    shared = {
        "failurePolicy": "Fail",
        "matchConstraints": _MATCH,
        "matchConditions": [{"name": title, "expression": text} for title, text in conditions],
        "variables": variables,
    }
    mutations = [
        {"patchType": kind, ("jsonPatch" if kind == "JSONPatch" else "applyConfiguration"): {"expression": text}}
        for kind, text in writer.list_mutations()
    ]
    validations = [
        {"expression": text, "message": f"fabric {name}: {message}"} for text, message in writer.list_validations()
    ]
    yield _build(
        "MutatingAdmissionPolicy", object_name, {**shared, "reinvocationPolicy": "IfNeeded", "mutations": mutations}
    )
    yield from _bind("MutatingAdmissionPolicyBinding", object_name, document, name)
    yield _build("ValidatingAdmissionPolicy", object_name, {**shared, "validations": validations})
    yield from _bind("ValidatingAdmissionPolicyBinding", object_name, document, name)


_MATCH = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted(opt_in.ALWAYS_EXCLUDED)}
        ]
    },
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "operations": ["CREATE"],
            "scope": "Namespaced",
        }
    ],
}


def _build(kind: str, name: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"apiVersion": _GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _bind(kind: str, name: str, document: model.FabricPolicy, fabric_name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the bindings for pods with the label of the fabric, and for pods without one in such a namespace."""
    labels = [fabric_name, *([names.FABRIC_DEFAULT] if document.default_fabric == fabric_name else [])]
    is_fabric = {"key": names.FABRIC, "operator": "In", "values": labels}
    selector = document.fabrics[fabric_name].namespaces
    allowed = [
        *({"key": key, "operator": "In", "values": [value]} for key, value in selector.match_labels.items()),
        *(msgspec.to_builtins(expression) for expression in selector.match_expressions),
    ]
    allowed = [{key: value for key, value in requirement.items() if value} for requirement in allowed]
    unlabelled = [{"key": names.FABRIC, "operator": "DoesNotExist"}]
    for suffix, pod, namespace in (("", [is_fabric], allowed), ("-by-namespace", unlabelled, [is_fabric, *allowed])):
        resources = {"objectSelector": {"matchExpressions": pod}}
        if namespace:
            resources["namespaceSelector"] = {"matchExpressions": namespace}
        actions = {"validationActions": ["Deny", "Audit"]} if kind.startswith("Validating") else {}
        yield _build(kind, f"{name}{suffix}", {"policyName": name, **actions, "matchResources": resources})


def _refuse_unknown(document: model.FabricPolicy) -> Iterator[Mapping[str, Any]]:
    """Yield the policy that rejects pods whose label names no fabric, and its binding."""
    known = [*document.fabrics, names.FABRIC_NONE, *([names.FABRIC_DEFAULT] if document.default_fabric else [])]
    name = _name_object("unknown-fabric")
    selected = [
        {"key": names.FABRIC, "operator": "Exists"},
        {"key": names.FABRIC, "operator": "NotIn", "values": known},
    ]
    label = f"object.metadata.labels[{expressions.quote(names.FABRIC)}]"
    message = f"is not a fabric of the policy; allowed are {', '.join(known)}"
    validation = {
        "expression": "false",
        "message": f"label {names.FABRIC} {message}",
        "messageExpression": f"'label {names.FABRIC} ' + {label} + {expressions.quote(f' {message}')}",
    }
    match = {**_MATCH, "objectSelector": {"matchExpressions": selected}}
    yield _build(
        "ValidatingAdmissionPolicy",
        name,
        {"failurePolicy": "Fail", "matchConstraints": match, "validations": [validation]},
    )
    yield _build("ValidatingAdmissionPolicyBinding", name, {"policyName": name, "validationActions": ["Deny", "Audit"]})


def _name_object(fabric: str) -> str:
    """Return a name of an object for a fabric. A fabric's name may have characters that an object's name has not."""
    name = re.sub("[^a-z0-9-]", "-", fabric.lower())
    if name != fabric:
        name = f"{name.strip('-')}-{hashlib.sha256(fabric.encode()).hexdigest()[:8]}"
    return f"railwright-export-{name}"
