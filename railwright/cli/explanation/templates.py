"""Builds the pods of a workload as its controller would create them: the template, its name, labels and variables.

`railwright.fabric.workloads` knows the controllers.
"""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from railwright.cli import output
from railwright.cli.explanation import manifests
from railwright.fabric import names
from railwright.fabric.injection import keys
from railwright.fabric.injection import templates as written
from railwright.fabric.workloads import kinds, registry

Tree = manifests.Tree
DEFAULT_NAMESPACE = "default"


class Template(msgspec.Struct, frozen=True):
    """One sort of pod an object makes. `part` is which of its templates, "" where it has one."""

    owner: str
    part: str
    pods: int | None  # None where the number is decided elsewhere
    namespace: str
    pod: Tree
    warnings: tuple[str, ...] = ()  # about the object; of the first of its templates
    requested: frozenset[str] | None = None  # extended resources of all templates; None for a pod that stands alone


def of(tree: Tree, namespace: str) -> list[Template] | None:
    """The pods of an object, those of `namespace` where it names none; None where it is no kind that makes pods.

    Raises UnreadableError for a workload that the API server would not take either.
    """
    metadata = manifests.mapping(tree, "metadata")
    where = str(metadata.get("namespace") or namespace)
    group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
    if (group, tree["kind"]) == ("", "Pod"):
        pod = {**tree, "metadata": {**metadata, "namespace": where}}
        return [Template(owner=manifests.title(tree, where), part="", pods=1, namespace=where, pod=pod)]
    kind = registry.find_kind(group, version, tree["kind"])
    if kind is None:
        return None
    workload = _read(kind, tree, where)
    templates = []
    for template in workload.templates:
        origin = kinds.TemplateOrigin(template.context, template.added, _list_ancestors(tree, template.pointer))
        templates += [_build_template(template, origin, where, pods) for pods in kind.create_pods(origin)]
    if templates:
        templates[0] = msgspec.structs.replace(templates[0], warnings=tuple(keys.above(workload)))
    return templates


def known() -> list[str]:
    """The kinds that are known, for messages."""
    return ["Pod", *dict.fromkeys(kind.name for kind in registry.KINDS)]


def _read(kind: kinds.WorkloadKind, tree: Tree, namespace: str) -> written.Workload:
    if not kind.passes_label:
        tree = {**tree, "metadata": _without_label(tree.get("metadata"))}
    try:
        return written.read(kind, msgspec.json.encode(tree))
    except written.UnreadableError as error:
        raise output.UnreadableError(f"{manifests.title(tree, namespace)}: {error}") from None


def _without_label(metadata: Any) -> Any:
    labels = {key: value for key, value in manifests.mapping(metadata, "labels").items() if key != names.FABRIC}
    return {**metadata, "labels": labels} if isinstance(metadata, dict) else metadata


def _list_ancestors(tree: Any, pointer: str) -> list[Any]:
    """Return every value from the object to the one that a JSON pointer points to."""
    ancestors = [tree]
    for step in pointer.split("/")[1:]:
        parent = ancestors[-1]
        ancestors.append(parent[int(step) if isinstance(parent, list) else step.replace("~1", "/").replace("~0", "~")])
    return ancestors


def _build_template(
    template: written.Template, origin: kinds.TemplateOrigin, namespace: str, pods: kinds.CreatedPods
) -> Template:
    tree = origin.ancestors[0]
    own = manifests.mapping(origin.ancestors[-1], "metadata")
    labels = {**manifests.mapping(own, "labels"), **template.added.labels, **pods.labels}
    if template.inherited is not None:
        labels.setdefault(names.FABRIC, template.inherited)
    name = f"{origin.context.workload}{pods.name}"
    metadata: Tree = {"generateName" if name.endswith("-") else "name": name, "namespace": namespace}
    metadata |= {"labels": labels} if labels else {}
    annotations = {**manifests.mapping(own, "annotations"), **pods.annotations}
    metadata |= {"annotations": annotations} if annotations else {}
    spec = copy.deepcopy(manifests.mapping(origin.ancestors[-1], "spec"))
    for container in _containers(spec):
        _add(container, "env", *({"name": variable, "value": ""} for variable in template.added.env))
        if (container_name := str(container.get("name"))) in template.added.commands:
            container["command"] = [*template.added.commands[container_name]]
    if pods.ssh_volume:
        _mount_keys(spec, pods.ssh_volume, f"{origin.context.workload}-ssh")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    count = pods.count if isinstance(pods.count, int) else None
    return Template(manifests.title(tree, namespace), pods.part, count, namespace, pod, requested=template.requested)


def _containers(spec: Tree) -> Iterator[Tree]:
    return (each for each in manifests.sequence(spec, "containers") if isinstance(each, dict))


def _mount_keys(spec: Tree, volume: str, secret: str) -> None:
    """Ranks are started by ssh: its keys are a Secret in every container."""
    _add(spec, "volumes", {"name": volume, "secret": {"secretName": secret, "defaultMode": 0o600}})
    for container in _containers(spec):
        _add(container, "volumeMounts", {"name": volume, "mountPath": names.SSH_HOME})


def _add(tree: Tree, key: str, *entries: Tree) -> None:
    if entries:
        tree[key] = [*manifests.sequence(tree, key), *entries]
