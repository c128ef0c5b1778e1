"""Writes MutatingAdmissionPolicies, with which the API server changes pods as the webhook would, without any server.

`situations` finds each change with its condition. Here is what an expression (CEL, admissionregistration.k8s.io/v1) can
say of them, and what it cannot: that is a `Gap`. What a pod itself asks for and the policies cannot do is refused by a
ValidatingAdmissionPolicy, so that no pod silently runs without its fabric.

Expressions read the variables of `list_variables`, so that each condition is written once. An expression sees the pod
as typed values, which cannot be copied into a JSON Patch: lists that do not merge by key are appended to.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.injection import opt_in, pod_changes
from railwright.fabric.nccl import libraries
from railwright.fabric.policy import model
from railwright.fabric.policy_export import situations
from railwright.fabric.workloads import volcano

Changes = Sequence[situations.ConditionalChange]
_Lines = list[str]
_STEP = "  "
_TARGET = "c.name in variables.targets"
_UNCHANGED = "variables.targets.size() == 0"
_VARIABLE = re.compile(r"variables\.(\w+)")
_OF_CONTAINER = re.compile(r"\bc\.")


def quote(text: str) -> str:
    """Return a CEL string."""
    escaped = msgspec.json.encode(text).decode()[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{escaped}'"


def _write_value(value: Any, type_name: str) -> str:
    """Return a CEL expression of a JSON value of a pod. `type_name` is the object's type, such as Object.spec."""
    if isinstance(value, Mapping):
        fields = [f"{key}: {_write_value(entry, f'{type_name}.{key}')}" for key, entry in value.items()]
        return f"{type_name}{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_write_value(entry, type_name) for entry in value)}]"
    return quote(value) if isinstance(value, str) else str(value).lower()


def _indent(lines: Sequence[str], depth: int = 1) -> _Lines:
    return [f"{_STEP * depth}{line}" for line in lines]


def _write_list(entries: Sequence[tuple[str, Sequence[str]]]) -> _Lines:
    """Return a CEL list of entries, each with the conditions under which it is in the list."""
    groups: list[tuple[str, _Lines]] = []
    for entry, conditions in entries:
        condition = " && ".join(conditions)
        if not groups or groups[-1][0] != condition:
            groups.append((condition, []))
        groups[-1][1].append(f"{entry},")
    lines: _Lines = []
    for condition, members in groups:
        plus = "+ " if lines else ""
        lines += [f"{plus}({condition} ? [" if condition else f"{plus}[", *_indent(members)]
        lines.append("] : [])" if condition else "]")
    return lines or ["[]"]


def _test_pod(conditions: Sequence[str]) -> list[str]:
    """Return conditions of a change of the pod. One about a container is true if a container of the fabric meets it."""
    if not any(_OF_CONTAINER.search(condition) for condition in conditions):
        return [*conditions]
    return [f"object.spec.containers.exists(c, {' && '.join((_TARGET, *conditions))})"]


class Expressions:
    """Writes the expressions of one fabric."""

    def __init__(self, document: model.PolicyDocument, fabric: model.Fabric, explored: Changes) -> None:
        self.document = document
        self.fabric = fabric
        self.explored = explored

    def _select(self, kind: type[pod_changes.Change]) -> list[tuple[Any, tuple[str, ...]]]:
        return [(change.change, change.conditions) for change in self.explored if type(change.change) is kind]

    @property
    def privileged(self) -> bool:
        """True if the containers become privileged."""
        return bool(self._select(pod_changes.SetPrivileged))

    @property
    def devices(self) -> dict[str, int]:
        """Return the number of devices of the rails by resource."""
        amounts = {change.resource: change.quantity for change, _ in self._select(pod_changes.AddResource)}
        return {resource: amount for resource, amount in amounts.items() if isinstance(amount, int)}

    def list_variables(self) -> Iterator[tuple[str, str]]:
        """Yield the names and expressions of the variables that the mutations and validations use."""
        accelerators = ", ".join(map(quote, self.document.accelerators))
        amount = "quantity(c.?resources.?limits[?r].orValue('0'))"
        has_any = f"[{accelerators}].exists(r,\n  {amount}.isGreaterThan(quantity('0')))"
        yield "accelerated", f"object.spec.containers.filter(c, {has_any}).map(c, c.name)"
        claiming = "object.spec.containers.filter(c, c.?resources.?claims.orValue([]).size() > 0).map(c, c.name)"
        yield "targets", f"variables.accelerated.size() > 0\n? variables.accelerated\n: {claiming}"
        variables = dict.fromkeys(change.name for change, _ in self._select(pod_changes.SetEnv))
        yield situations.NAMES, "\n".join(["[", *_indent([f"{quote(name)}," for name in variables]), "]"])
        read = {
            word for change in self.explored for condition in change.conditions for word in _VARIABLE.findall(condition)
        }
        for dimension in situations.DIMENSIONS:
            if dimension.variable in read:
                yield dimension.variable, dimension.definition
        if self.devices:
            yield "devices", self._write_devices()

    def _write_devices(self) -> str:
        """Return the devices that each container lacks, by its name. A request of the user is never lowered."""
        amounts = [f"{quote(resource)}: {count}," for resource, count in self.devices.items()]
        return "\n".join(
            [
                f"object.spec.containers.transformMapEntry(i, c, {_TARGET}, {{c.name: {{",
                *_indent(amounts),
                # what containers without the fabric hold counts for the pod
                (
                    "}.transformMap(r, n, n - object.spec.containers.filter(o, !(o.name in variables.targets)"
                    " && o.?resources.?limits[?r].hasValue())"
                ),
                "  .map(o, quantity(o.resources.limits[r]).asInteger()).sum())",
                (
                    " .transformMap(r, n, c.?resources.?limits[?r].hasValue()"
                    " ? quantity(c.resources.limits[r]).isGreaterThan(quantity('0'))"
                ),
                "  && quantity(c.resources.limits[r]).isLessThan(quantity(string(n))) : n > 0, string(n))})",
            ]
        )

    def list_mutations(self) -> Iterator[tuple[str, str]]:
        """Yield patch types and expressions, in the order in which they are applied."""
        if forced := self._write_forced():
            yield "JSONPatch", "\n".join(forced)
        yield "ApplyConfiguration", "\n".join(self._write_configuration())
        if resources := self._write_resources():
            yield "ApplyConfiguration", "\n".join(resources)
        if fields := self._write_fields():
            yield "JSONPatch", "\n".join(fields)
        if volumes := self._select(pod_changes.AddVolume):
            yield "JSONPatch", "\n".join(self._write_volumes([change.added for change, _ in volumes]))
        if capabilities := self._select(pod_changes.AddCapability):
            yield "JSONPatch", "\n".join(self._write_capabilities(capabilities))

    def _write_forced(self) -> _Lines:
        """Replace values of the user that the policy forces."""
        force = self.fabric.force_env
        forced = [(change, when) for change, when in self._select(pod_changes.SetEnv) if change.name in force]
        if not forced:
            return []
        entries = [
            (f"{{'name': {quote(change.name)}, 'value': {quote(change.value)}}}", when) for change, when in forced
        ]
        return [
            f"object.spec.containers.transformList(i, c, {_TARGET}, c.?env.orValue([]).transformList(j, own, (",
            *_indent(_write_list(entries)),
            ").filter(e, e.name == own.name && e.value != own.?value.orValue('')).map(e, JSONPatch{",
            *_indent(["op: 'replace',", "path: '/spec/containers/' + string(i) + '/env/' + string(j),", "value: e"]),
            "})).flatten()).flatten()",
        ]

    def _write_configuration(self) -> _Lines:
        """Add what merges by name or key: annotations, variables, devices and mounts."""
        container = ["name: c.name,", *self._write_environment()]
        if self.devices:
            resources = ["requests: variables.devices[c.name],", "limits: variables.devices[c.name],"]
            container += ["resources: Object.spec.containers.resources{", *_indent(resources), "},"]
        container += self._write_mounts()
        if self.privileged:
            container += [
                "securityContext: Object.spec.containers.securityContext{",
                "  privileged: c.?securityContext.?privileged.orValue(true),",
                "},",
            ]
        return [
            "Object{",
            *_indent(self._write_annotations()),
            "  spec: Object.spec{",
            f"    containers: object.spec.containers.filter(c, {_TARGET}).map(c, Object.spec.containers{{",
            *_indent(container, 3),
            "    }),",
            "  },",
            "}",
        ]

    def _write_resources(self) -> _Lines:
        """Add the resources beside those of the rails that a container does not mention."""
        entries = [
            (f"{{'key': {quote(change.resource)}, 'value': {quote(change.quantity)}}}", when)
            for change, when in self._select(pod_changes.AddResource)
            if isinstance(change.quantity, str)
        ]
        if not entries:
            return []
        absent = "!c.?resources.?limits[?e.key].hasValue() && !c.?resources.?requests[?e.key].hasValue()"
        return [
            f"Object{{spec: Object.spec{{containers: object.spec.containers.filter(c, {_TARGET}).map(c, [(",
            *_indent(_write_list(entries)),
            f").filter(e, {absent}).transformMapEntry(i, e, {{e.key: e.value}})].map(amounts,",
            "  Object.spec.containers{name: c.name, resources: Object.spec.containers.resources{",
            "    requests: amounts,",
            "    limits: amounts,",
            "  }})).flatten()}}",
        ]

    def _write_fields(self) -> _Lines:
        """Set fields of spec that are not set, and add tolerations."""
        entries: list[tuple[str, Sequence[str]]] = []
        for change, when in self._select(pod_changes.SetField):
            field, value = pod_changes.FIELDS[change.name], change.value
            unset = "false" if isinstance(value, bool) else "''"
            others = "[false]" if isinstance(value, bool) else "['', 'ClusterFirst']"
            test = f"object.spec.?{field}.orValue({unset}) in {others}"
            patch = f"JSONPatch{{op: 'add', path: '/spec/{field}', value: {_write_value(value, '')}}}"
            entries.append((patch, (f"!({_UNCHANGED})", *_test_pod(when), test)))
        tolerations = self._select(pod_changes.AddToleration)
        if tolerations:
            create = "JSONPatch{op: 'add', path: '/spec/tolerations', value: []}"
            entries.append((create, (f"!({_UNCHANGED})", "!has(object.spec.tolerations)")))
        for change, when in tolerations:
            tests = [
                f"t.?{key}.orValue('') == {quote(change.added.get(key, ''))}"
                for key in ("key", "operator", "value", "effect")
            ]
            test = f"!object.spec.?tolerations.orValue([]).exists(t, {' && '.join(tests)})"
            value = _write_value(change.added, "Object.spec.tolerations")
            patch = f"JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {value}}}"
            entries.append((patch, (f"!({_UNCHANGED})", *_test_pod(when), test)))
        return _write_list(entries) if entries else []

    def _write_annotations(self) -> _Lines:
        """Add annotations. Those of the user stay, except for the content of /etc/nccl.conf."""
        annotations = self._select(pod_changes.SetAnnotation)
        if not annotations:
            return []
        entries = [
            (f"{{'key': {quote(change.key)}, 'value': {quote(change.value)}}}", _test_pod(when))
            for change, when in annotations
        ]
        return [
            "metadata: Object.metadata{",
            "  annotations: (",
            *_indent(_write_list(entries), 2),
            f"  ).filter(e, !({_UNCHANGED}) && (e.key == {quote(names.NCCL_CONF)}",
            "     || !(e.key in object.metadata.?annotations.orValue({}))))",
            "   .transformMapEntry(i, e, {e.key: e.value}),",
            "},",
        ]

    def _write_environment(self) -> _Lines:
        """Add the variables that the container does not set."""
        entries = [
            (
                f"{{'name': {quote(change.name)}, 'value': {quote(change.value)}}}",
                (*when, *self._find_conflicts(change)),
            )
            for change, when in self._select(pod_changes.SetEnv)
        ]
        if not entries:
            return []
        return [
            "env: (",
            *_indent(_write_list(entries)),
            ").filter(e, !c.?env.orValue([]).exists(own, own.name == e.name))",
            " .map(e, Object.spec.containers.env{name: e.name, value: e.value}),",
        ]

    def _find_conflicts(self, change: pod_changes.SetEnv) -> list[str]:
        """Return the condition that the container sets no variable that conflicts with this one."""
        own_values = {change.name: change.value for change, _ in self._select(pod_changes.SetEnv)}
        tests = []
        for other in libraries.CONFLICTING_VARIABLES.get(change.name, ()):
            test = f"own.name == {quote(other)}"
            if other in own_values:
                test = f"({test} && own.?value.orValue('') != {quote(own_values[other])})"
            tests.append(test)
        return [f"!c.?env.orValue([]).exists(own, {' || '.join(tests)})"] if tests else []

    def _write_mounts(self) -> _Lines:
        """Mount volumes where nothing is mounted at the path."""
        entries = [
            (_write_value(change.mount, "Object.spec.containers.volumeMounts"), when)
            for change, when in self._select(pod_changes.AddMount)
        ]
        if not entries:
            return []
        occupied = "!c.?volumeMounts.orValue([]).exists(own, own.mountPath == m.mountPath)"
        return ["volumeMounts: (", *_indent(_write_list(entries)), f").filter(m, {occupied}),"]

    @staticmethod
    def _write_volumes(volumes: Sequence[Mapping[str, Any]]) -> _Lines:
        """Add the volumes that the mounts of the mutation before use."""
        entries: list[tuple[str, Sequence[str]]] = []
        for volume in volumes:
            name = quote(volume["name"])
            mounted = f"object.spec.containers.exists(c, c.?volumeMounts.orValue([]).exists(m, m.name == {name}))"
            absent = f"!object.spec.?volumes.orValue([]).exists(v, v.name == {name})"
            entries.append((_write_value(volume, "Object.spec.volumes"), (mounted, absent)))
        return [
            "(has(object.spec.volumes) ? [] : [JSONPatch{op: 'add', path: '/spec/volumes', value: []}]) + (",
            *_indent(_write_list(entries)),
            ").map(v, JSONPatch{op: 'add', path: '/spec/volumes/-', value: v})",
        ]

    def list_validations(self) -> Iterator[tuple[str, str]]:
        """Yield what must be true of a pod for the mutations to be right, with the message if it is not."""
        unsupported = (names.RAILS, names.CONTAINERS, names.SKIP, names.DELIVERY)
        keys, listed = ", ".join(map(quote, unsupported)), ", ".join(unsupported)
        message = f"the annotations {listed} need railwright's webhook, which this cluster does not call"
        expression = f"{_UNCHANGED} || ![{keys}].exists(key, key in object.metadata.?annotations.orValue({{}}))"
        yield expression, f"{message}; remove them, or install the webhook"
        if self.devices:
            is_zero = "c.?resources.?limits[?r].hasValue() && quantity(c.resources.limits[r]) == quantity('0')"
            keys, listed = ", ".join(map(quote, self.devices)), ", ".join(self.devices)
            message = f"a request of 0 for {listed} leaves out a rail, which needs railwright's webhook"
            expression = f"!object.spec.containers.exists(c, [{keys}].exists(r, {is_zero}))"
            yield expression, f"{message}; remove it, or install the webhook"
        if self.privileged:
            message = "securityContext.privileged is false, and the fabric needs a privileged container"
            expression = f"object.spec.containers.all(c, !({_TARGET}) || c.?securityContext.?privileged.orValue(false))"
            yield expression, f"{message}; remove it or use another fabric"

    @staticmethod
    def _write_capabilities(changes: Sequence[tuple[pod_changes.AddCapability, tuple[str, ...]]]) -> _Lines:
        """Add the capabilities that a container neither has nor drops."""
        context = "c.?securityContext.?capabilities"
        missing = [
            (
                quote(change.capability),
                (
                    *when,
                    f"!{context}.?add.orValue([]).exists(n, n in {_list_forms(change.capability, 'ALL')})",
                    f"!{context}.?drop.orValue([]).exists(n, n in {_list_forms(change.capability)})",
                ),
            )
            for change, when in changes
        ]
        path = "path: '/spec/containers/' + string(i) + '/securityContext"
        return [
            f"object.spec.containers.transformList(i, c, {_TARGET}, [(",
            *_indent(_write_list(missing)),
            ")].filter(added, added.size() > 0).map(added,",
            f"  (has(c.securityContext) ? [] : [JSONPatch{{op: 'add', {path}', value: {{}}}}])",
            f"  + ({context}.hasValue() ? [] : [JSONPatch{{op: 'add', {path}/capabilities', value: {{}}}}])",
            f"  + ({context}.?add.hasValue() ? [] : [JSONPatch{{op: 'add', {path}/capabilities/add', value: []}}])",
            f"  + added.map(n, JSONPatch{{op: 'add', {path}/capabilities/add/-', value: n}})",
            ").flatten()).flatten()",
        ]


def _list_forms(capability: str, *others: str) -> str:
    return f"[{', '.join(map(quote, (capability, f'CAP_{capability}', *others)))}]"


# --- policies ---------------------------------------------------------------------------------------------

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


def _examine(policy: model.Policy, name: str) -> tuple[list[Gap], Changes | None]:
    """Return what of a fabric cannot be expressed, and its changes unless it is left out."""
    fabric = policy.document.fabrics[name]
    base = f"fabrics.{name}"
    if (fabric.mode or policy.document.mode) == "audit":
        path = f"{base}.mode" if fabric.mode else "mode"
        return [Gap(path, "audit", "no expression reports a change without making it", "set enforce", True)], None
    if fabric.rails_per_pod == "proportional":
        problem = "the device list depends on the number of GPUs of each pod"
        return [Gap(f"{base}.railsPerPod", "proportional", problem, f"{_WEBHOOK}, or set all", True)], None
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


def _find_role_gaps(document: model.PolicyDocument) -> Iterator[Gap]:
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


def _build_objects(document: model.PolicyDocument, name: str, explored: Changes) -> Iterator[Mapping[str, Any]]:
    """Yield the policy that changes the pods of a fabric, the one that refuses pods, and their bindings."""
    writer = Expressions(document, document.fabrics[name], explored)
    object_name = _name_object(name)
    variables = [{"name": variable, "expression": text} for variable, text in writer.list_variables()]
    never = [task for task, decision in document.roles.volcano_tasks.items() if decision == "never"]
    conditions = [("is-no-mirror-pod", f"!({quote(opt_in.MIRROR)} in object.metadata.?annotations.orValue({{}}))")]
    if never:
        task = f"object.metadata.?labels[?{quote(volcano.TASK)}].orValue('')"
        conditions.append(("is-no-excluded-task", f"!({task} in [{', '.join(map(quote, never))}])"))
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


def _bind(kind: str, name: str, document: model.PolicyDocument, fabric_name: str) -> Iterator[Mapping[str, Any]]:
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


def _refuse_unknown(document: model.PolicyDocument) -> Iterator[Mapping[str, Any]]:
    """Yield the policy that rejects pods whose label names no fabric, and its binding."""
    known = [*document.fabrics, names.FABRIC_NONE, *([names.FABRIC_DEFAULT] if document.default_fabric else [])]
    name = _name_object("unknown-fabric")
    selected = [
        {"key": names.FABRIC, "operator": "Exists"},
        {"key": names.FABRIC, "operator": "NotIn", "values": known},
    ]
    label = f"object.metadata.labels[{quote(names.FABRIC)}]"
    message = f"is not a fabric of the policy; allowed are {', '.join(known)}"
    validation = {
        "expression": "false",
        "message": f"label {names.FABRIC} {message}",
        "messageExpression": f"'label {names.FABRIC} ' + {label} + {quote(f' {message}')}",
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
