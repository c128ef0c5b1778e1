"""Writes the expressions (CEL) with which the API server makes the changes of an injection and checks pods.

They read the variables of `list_variables`, so that each condition is written once. An expression sees the pod as typed
values, which cannot be copied into a JSON Patch: lists that do not merge by key are appended to.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.injection import pod_changes
from railwright.fabric.nccl import libraries
from railwright.fabric.policy import model
from railwright.fabric.policy_export import situations

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

    def __init__(self, document: model.FabricPolicy, fabric: model.Fabric, explored: Changes) -> None:
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
        yield (
            "accelerated",
            (
                f"object.spec.containers.filter(c, [{accelerators}].exists(r,\n"
                f"  {amount}.isGreaterThan(quantity('0')))).map(c, c.name)"
            ),
        )
        yield (
            "targets",
            (
                "variables.accelerated.size() > 0\n? variables.accelerated\n"
                ": object.spec.containers.filter(c, c.?resources.?claims.orValue([]).size() > 0).map(c, c.name)"
            ),
        )
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
        forced = [(change, when) for change, when in self._select(pod_changes.SetEnv) if self._is_forced(change)]
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

    def _is_forced(self, change: pod_changes.SetEnv) -> bool:
        return change.name in self.fabric.force_env

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
        yield (
            (
                f"{_UNCHANGED} || ![{', '.join(map(quote, unsupported))}]"
                ".exists(key, key in object.metadata.?annotations.orValue({}))"
            ),
            (
                f"the annotations {', '.join(unsupported)} need railwright's webhook, which this cluster does not call;"
                " remove them, or install the webhook"
            ),
        )
        if self.devices:
            resources = ", ".join(map(quote, self.devices))
            yield (
                (
                    f"!object.spec.containers.exists(c, [{resources}].exists(r, c.?resources.?limits[?r].hasValue()"
                    " && quantity(c.resources.limits[r]) == quantity('0')))"
                ),
                (
                    f"a request of 0 for {', '.join(self.devices)} leaves out a rail, which needs railwright's webhook;"
                    " remove it, or install the webhook"
                ),
            )
        if self.privileged:
            yield (
                f"object.spec.containers.all(c, !({_TARGET}) || c.?securityContext.?privileged.orValue(false))",
                (
                    "securityContext.privileged is false, and the fabric needs a privileged container; remove it or use"
                    " another fabric"
                ),
            )

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
