"""Workload -> its pods as the controller would create them: the template, its name, and the labels that tell a role.

Owns how the two tables join: where templates are and what tells a role (`railwright.fabric.injection.kinds`), and how
many pods are made of one and how they are called (`controllers`). Pure. Refuses to know fabrics.
"""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from railwright.cli import output
from railwright.cli.explanation import controllers, manifests
from railwright.fabric import names
from railwright.fabric.injection import keys, kinds
from railwright.fabric.injection import templates as written

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
    row = controllers.find(group, version, tree["kind"])
    if row is None:
        return None
    kind, makes = row
    workload = _read(kind, tree, where)
    origins = [controllers.Origin(kind, each, _way(tree, each.pointer)) for each in workload.templates]
    found = [_template(origin, where, made) for origin in origins for made in makes(origin)]
    if found:
        found[0] = msgspec.structs.replace(found[0], warnings=tuple(keys.above(workload)))
    return found


def known() -> list[str]:
    """The kinds that are known, for messages."""
    return ["Pod", *controllers.known()]


def _read(kind: kinds.Kind, tree: Tree, namespace: str) -> written.Workload:
    if not controllers.reached(kind):
        tree = {**tree, "metadata": _without_label(tree.get("metadata"))}
    try:
        return written.read(kind, msgspec.json.encode(tree))
    except written.UnreadableError as error:
        raise output.UnreadableError(f"{manifests.title(tree, namespace)}: {error}") from None


def _without_label(metadata: Any) -> Any:
    labels = {key: value for key, value in manifests.mapping(metadata, "labels").items() if key != names.FABRIC}
    return {**metadata, "labels": labels} if isinstance(metadata, dict) else metadata


def _way(tree: Any, pointer: str) -> list[Any]:
    """All from the object to what a JSON pointer points to."""
    way = [tree]
    for step in pointer.split("/")[1:]:
        here = way[-1]
        way.append(here[int(step) if isinstance(here, list) else step.replace("~1", "/").replace("~0", "~")])
    return way


def _template(origin: controllers.Origin, namespace: str, made: controllers.Made) -> Template:
    tree, template = origin.way[0], origin.template
    own = manifests.mapping(origin.way[-1], "metadata")
    labels = {**manifests.mapping(own, "labels"), **template.added.labels, **made.labels}
    if template.inherited is not None:
        labels.setdefault(names.FABRIC, template.inherited)
    name = f"{origin.name}{made.name}"
    metadata: Tree = {"generateName" if name.endswith("-") else "name": name, "namespace": namespace}
    metadata |= {"labels": labels} if labels else {}
    annotations = {**manifests.mapping(own, "annotations"), **made.annotations}
    metadata |= {"annotations": annotations} if annotations else {}
    spec = copy.deepcopy(manifests.mapping(origin.way[-1], "spec"))
    for container in _containers(spec):
        _add(container, "env", *({"name": variable, "value": ""} for variable in template.added.env))
        if (container_name := str(container.get("name"))) in template.added.commands:
            container["command"] = [*template.added.commands[container_name]]
    if made.keys:
        _mount_keys(spec, made.keys, f"{origin.name}-ssh")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    count = made.pods if isinstance(made.pods, int) else None
    return Template(manifests.title(tree, namespace), made.part, count, namespace, pod, requested=template.requested)


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
