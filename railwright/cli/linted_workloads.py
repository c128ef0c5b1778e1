"""Reads the pod templates of any Kubernetes object as plain data.

A template is a mapping whose `spec` has `containers`, or whose `spec.podSpec` has them, as in a clique of Grove. So
kinds that `railwright.fabric.workloads` does not list are read as well.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.workloads import frameworks, grove, jobset, registry

Path = tuple[str | int, ...]
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")  # of a path in msgspec's errors
_SPECS = "ReplicaSpecs"  # suffix of mpiReplicaSpecs, pytorchReplicaSpecs and those of unknown kinds
_CLIQUE = grove.POD_SPEC
_NAME_FIELDS = tuple(dict.fromkeys(["name", *(path.name_field for kind in registry.KINDS for path in kind.templates)]))


class WrongTypeError(ValueError):
    """Raised for a pod template or claim with a value of a wrong type. `path` is its place in the document."""

    def __init__(self, error: msgspec.ValidationError, place: Path) -> None:
        super().__init__(str(error))
        steps = _STEP.findall(str(error).rpartition("`$")[2])
        self.path = (*place, *(key or int(index) for key, index in steps))


class Template(msgspec.Struct, frozen=True):
    """A pod template of an object, with its path in the document."""

    part: str  # "task master", "Worker"; "" if the object has one template
    path: Path  # of the template in the document
    containers: Path | None  # of the list of its containers; None: the template itself is the container
    pod: views.Pod

    def locate_container(self, index: int) -> Path:
        """Return the path of a container in the document."""
        return self.path if self.containers is None else (*self.containers, index)


def list_objects(tree: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the objects of a document with their paths, also those in Lists."""
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str):
        return
    items = tree.get("items")
    if not (tree["kind"].endswith("List") and isinstance(items, list)):
        yield path, tree
        return
    for index, item in enumerate(items):
        yield from list_objects(item, (*path, "items", index))


def read_templates(tree: Mapping[str, Any], path: Path = ()) -> tuple[Template, ...]:
    """Return the templates of an object at `path` of its document. Raises WrongTypeError."""
    container = _read_trainer(tree, path) if tree["kind"] == "TrainJob" else ()
    return (*container, *_find_templates(tree, path, ()))


def _find_templates(node: Any, path: Path, above: tuple[Any, ...]) -> Iterator[Template]:
    if isinstance(node, dict):
        spec = node.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield _build_template(node.get("metadata"), ("spec",), node, path, above)
            return
        if isinstance(spec, dict) and isinstance(frameworks.get_mapping(spec, *_CLIQUE[1:]).get("containers"), list):
            yield _build_template({"labels": node.get("labels") or {}}, _CLIQUE, node, path, above)
            return
        for key, value in node.items():
            yield from _find_templates(value, (*path, str(key)), (*above, node))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _find_templates(value, (*path, index), (*above, node))


def _build_template(
    metadata: Any, spec: tuple[str, ...], node: Mapping[str, Any], path: Path, above: Sequence[Any]
) -> Template:
    pod = _build_pod(metadata, frameworks.get_mapping(node, *spec), path, above)
    return Template(_find_template_name(path, above), path, (*path, *spec, "containers"), pod)


def _read_trainer(root: Mapping[str, Any], path: Path) -> Iterator[Template]:
    """Yield a template for the container of a TrainJob, whose pod template is in a runtime of the cluster."""
    container = frameworks.get_mapping(root, "spec").get("trainer")
    if isinstance(container, dict):
        container = {**container, "name": jobset.TRAINER_NODE, "resources": container.get("resourcesPerNode")}
        place = (*path, "spec", "trainer")
        yield Template("trainer", place, None, _build_pod(None, {"containers": [container]}, place, (root,)))


def _build_pod(metadata: Any, spec: Mapping[str, Any], path: Path, above: Sequence[Any]) -> views.Pod:
    """Return the template as a pod, with the opt-in label of its closest parent (docs/interface.md 1.2)."""
    own = dict(metadata) if isinstance(metadata, dict) else {}
    labels = [frameworks.get_mapping(node, "metadata", "labels").get(names.FABRIC) for node in reversed(above)]
    label = next((label for label in labels if label is not None), None)
    if label is not None:
        own["labels"] = {names.FABRIC: label, **frameworks.get_mapping(own, "labels")}
    try:
        return msgspec.convert({"metadata": own, "spec": spec}, views.Pod)
    except msgspec.ValidationError as error:
        raise WrongTypeError(error, path) from None


def _find_template_name(path: Path, above: Sequence[Any]) -> str:
    """Return the name of a template: that of the last list entry or replica type on its path."""
    part, steps = "", path[-len(above) :] if above else ()
    for at, step in enumerate(steps):
        node = above[at]
        if isinstance(step, int) and isinstance(node[step], dict):
            part = next((str(node[step][key]) for key in _NAME_FIELDS if key in node[step]), part)
        elif isinstance(step, str) and (
            str(steps[at - 1] if at else "").endswith(_SPECS) or step.endswith(("GroupSpec", "rTemplate"))
        ):
            part = step
    return part
