"""Reads manifests for `railwright lint`: objects with their pod templates, pods, claims, and places in the file.

A pod template is a mapping whose `spec` has `containers`, or whose `spec.podSpec` has them, as in a clique of Grove. So
kinds that `railwright.fabric.workloads` does not list are read as well.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import yaml

from railwright.cli import object_files, output
from railwright.cli.explanation import templates as pod_templates
from railwright.cluster import documents
from railwright.fabric import names, views
from railwright.fabric.claims import objects
from railwright.fabric.injection import keys
from railwright.fabric.lint.rules import claims as claim_rules
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import frameworks, grove, jobset, registry

Path = documents.Path
CreatedPod = tuple[pod_templates.Template, views.Pod]  # a pod as its controller creates it
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")  # of a path in msgspec's errors
_NAME_FIELDS = tuple(dict.fromkeys(["name", *(path.name_field for kind in registry.KINDS for path in kind.templates)]))
_GROUP = "resource.k8s.io"
_TEMPLATE = "ResourceClaimTemplate"


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


class Object(msgspec.Struct, frozen=True):
    """An object of a manifest, with its pod templates, the pods of its controller, and warnings about its keys."""

    path: Path  # in the document
    tree: dict[str, Any]
    namespace: str
    templates: tuple[Template, ...] = ()  # of pods, also of kinds that railwright does not know
    pods: tuple[CreatedPod, ...] = ()  # that its controller creates
    warnings: tuple[tuple[Path, reason.Reason], ...] = ()  # about keys of railwright, with their places
    claim: claim_rules.ClaimContext | None = None
    devices: Path = ()  # path of `devices` of the claim

    @property
    def title(self) -> str:
        """Kind, namespace and name, for messages."""
        return pod_templates.format_title(self.tree)


class Manifest(msgspec.Struct, frozen=True):
    """A document of a manifest, as kubectl reads it."""

    file: str
    document: documents.Document
    objects: tuple[Object, ...]


def read_manifests(path: str, text: str, namespace: str = pod_templates.DEFAULT_NAMESPACE) -> list[Manifest]:
    """Return the documents of a manifest file. Objects without a namespace are in `namespace`.

    Raises UnreadableError for an invalid manifest, and for one without objects.
    """
    try:
        roots = [root for root in documents.parse(text) if isinstance(root, yaml.MappingNode)]
        manifests = [_read_manifest(path, documents.build_document(root), namespace) for root in roots]
    except documents.DocumentError as error:
        raise output.UnreadableError(f"{path}: {error}") from None
    # an empty mapping, or an empty List; a policy, which has no `kind`, is no error, because folders contain one
    if all(not manifest.document.tree or manifest.document.tree.get("items") == [] for manifest in manifests):
        raise output.UnreadableError(f"{path}: contains no Kubernetes object; expected a pod or a workload")
    return manifests


def _read_manifest(file: str, document: documents.Document, namespace: str) -> Manifest:
    tree = documents.remove_nulls(document.tree, names.FABRIC)
    items = [_read_object(file, document, path, item, namespace) for path, item in list_objects(tree)]
    return Manifest(file, document, tuple(items))


def _read_object(
    file: str, document: documents.Document, path: Path, tree: dict[str, Any], default_namespace: str
) -> Object:
    """Return an object, without pods and warnings if the API server rejects it.

    Raises UnreadableError for an invalid pod template or claim.
    """
    namespace = str(frameworks.get_mapping(tree, "metadata").get("namespace") or default_namespace)
    try:
        templates = read_templates(tree, path)
        claim, devices = _read_claim(tree, path)
    except WrongTypeError as error:
        mismatch = object_files.describe_mismatch(error)
        place = f"{file}:{document.find_line(error.path)}"
        raise output.UnreadableError(f"{place}: is not a valid Kubernetes manifest: {mismatch}") from None
    item = Object(path, tree, namespace, templates, claim=claim, devices=devices)
    with contextlib.suppress(output.UnreadableError, msgspec.ValidationError):
        pods = tuple(
            (one, msgspec.convert(one.pod, views.Pod)) for one in pod_templates.list_templates(tree, namespace)
        )
        item = msgspec.structs.replace(item, pods=pods, warnings=tuple(_list_key_warnings(tree, pods)))
    return item


def _read_claim(tree: dict[str, Any], path: Path) -> tuple[claim_rules.ClaimContext | None, Path]:
    """Return a ResourceClaim or ResourceClaimTemplate and the path of its devices in the manifest; None for others."""
    kind = tree["kind"]
    if str(tree.get("apiVersion")).partition("/")[0] != _GROUP or kind not in claim_rules.KINDS:
        return None, ()
    below = ("spec", "spec", "devices") if kind == _TEMPLATE else ("spec", "devices")
    try:
        devices = msgspec.convert(frameworks.get_mapping(tree, *below), objects.DeviceClaim)
    except msgspec.ValidationError as error:
        raise WrongTypeError(error, (*path, *below)) from None
    return claim_rules.ClaimContext(devices, kind == _TEMPLATE), (*path, *below)


def _list_key_warnings(tree: dict[str, Any], pods: Iterable[CreatedPod]) -> Iterator[tuple[Path, reason.Reason]]:
    """Yield the warnings about railwright's keys on an object and its pods, each with the path of its template."""
    if (tree.get("apiVersion"), tree["kind"]) == ("v1", "Namespace"):
        metadata = msgspec.convert(tree.get("metadata") or {}, views.ObjectMeta)
        yield from (((), warning) for warning in keys.check_namespace(metadata))
    yield from (((), warning) for warning in pod_templates.check_train_job(tree))
    for template, pod in pods:
        yield from (((), warning) for warning in template.warnings)
        yield from ((template.path, warning) for warning in keys.check_pod(pod.metadata))


# --- pod templates ----------------------------------------------------------------------------------------


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
    container = _read_train_job(tree, path) if tree["kind"] == "TrainJob" else ()
    return (*container, *_find_templates(tree, path))


def _read_train_job(root: Mapping[str, Any], path: Path) -> Iterator[Template]:
    """Yield a template for the container of a TrainJob, whose pod template is in a runtime of the cluster."""
    container = frameworks.get_mapping(root, "spec").get("trainer")
    if isinstance(container, dict):
        container = {**container, "name": jobset.TRAINER_NODE, "resources": container.get("resourcesPerNode")}
        place = (*path, "spec", "trainer")
        yield Template("trainer", place, None, _build_pod(None, {"containers": [container]}, place, _get_label(root)))


def _find_templates(node: Any, path: Path, part: str = "", label: Any = None) -> Iterator[Template]:
    """Yield the pod templates in a part of a document. `part` and `label` are from its closest parents."""
    if isinstance(node, list):
        for index, entry in enumerate(node):
            fields = entry if isinstance(entry, dict) else {}
            name = next((str(fields[key]) for key in _NAME_FIELDS if key in fields), part)
            yield from _find_templates(entry, (*path, index), name, label)
    elif isinstance(node, dict):
        spec, clique = frameworks.get_mapping(node, "spec"), frameworks.get_mapping(node, *grove.POD_SPEC)
        if isinstance(spec.get("containers"), list):
            pod = _build_pod(node.get("metadata"), spec, path, label)
            yield Template(part, path, (*path, "spec", "containers"), pod)
        elif isinstance(clique.get("containers"), list):
            pod = _build_pod({"labels": node.get("labels") or {}}, clique, path, label)
            yield Template(part, path, (*path, *grove.POD_SPEC, "containers"), pod)
        else:
            own_label = _get_label(node)
            label = label if own_label is None else own_label
            has_replica_types = str(path[-1] if path else "").endswith("ReplicaSpecs")  # as mpiReplicaSpecs
            for key, value in node.items():
                step = str(key)
                is_part = has_replica_types or step.endswith(("GroupSpec", "rTemplate"))
                yield from _find_templates(value, (*path, step), step if is_part else part, label)


def _get_label(node: Mapping[str, Any]) -> Any:
    return frameworks.get_mapping(node, "metadata", "labels").get(names.FABRIC)


def _build_pod(metadata: Any, spec: Mapping[str, Any], path: Path, label: Any) -> views.Pod:
    """Return the template as a pod, with the opt-in label of its closest parent (docs/interface.md 1.2)."""
    own = dict(metadata) if isinstance(metadata, dict) else {}
    if label is not None:
        own["labels"] = {names.FABRIC: label, **frameworks.get_mapping(own, "labels")}
    try:
        return msgspec.convert({"metadata": own, "spec": spec}, views.Pod)
    except msgspec.ValidationError as error:
        raise WrongTypeError(error, path) from None
