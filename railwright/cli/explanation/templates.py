"""Builds the pods of a workload as its controller would create them: the template, its name, labels and variables.

`railwright.fabric.workloads` knows the controllers.
"""

import copy
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from railwright.cli import object_files, output
from railwright.fabric import names, views
from railwright.fabric.injection import facts, keys
from railwright.fabric.injection import templates as stored
from railwright.fabric.injection.accelerators import has_accelerator
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, registry

Tree = dict[str, Any]
DEFAULT_NAMESPACE = "default"


class Template(msgspec.Struct, frozen=True):
    """One kind of pod that an object creates. `part` names its template, "" if the object has only one."""

    owner: str
    part: str
    pods: int | None  # None if the number is decided elsewhere
    namespace: str
    pod: Tree
    path: tuple[str | int, ...] = ()  # of the template in the object
    warnings: tuple[reason.Reason, ...] = ()  # about the object; only on its first template
    requested: frozenset[str] | None = None  # extended resources of all templates; None for a bare Pod
    inherits_label: bool = False  # the label of the pod is that of its workload, which admission copies if enforced

    def add_accelerator_request(self, known: facts.ClusterFacts, accelerators: Collection[str]) -> facts.ClusterFacts:
        """Return the facts for admission, completed by whether a template of the workload requests an accelerator."""
        if self.requested is None:
            return known
        return msgspec.structs.replace(known, job_accelerated=has_accelerator(self.requested, accelerators))


def format_title(tree: Tree, namespace: str = "") -> str:
    """Return kind, namespace and name of an object for messages, as far as it has them."""
    metadata = frameworks.get_mapping(tree, "metadata")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    namespace = namespace or metadata.get("namespace") or ""
    return f"{tree.get('kind')} {namespace}/{name}" if namespace else f"{tree.get('kind')} {name}"


def list_templates(tree: Tree, namespace: str) -> list[Template]:
    """Return the templates of an object's pods, in `namespace` if the object names none; [] for a kind without pods.

    Raises UnreadableError for a workload or pod that the API server would reject.
    """
    metadata = frameworks.get_mapping(tree, "metadata")
    own_namespace = str(metadata.get("namespace") or namespace)
    group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
    templates: list[Template] = []
    if (group, tree["kind"]) == ("", "Pod"):
        pod = {**tree, "metadata": {**metadata, "namespace": own_namespace}}
        templates.append(Template(format_title(tree, own_namespace), "", 1, own_namespace, pod))
    elif kind := registry.find_kind(group, version, tree["kind"]):
        workload = _read_templates(kind, tree, own_namespace)
        for item in workload.templates:
            templates += [_build_template(item, own_namespace, pods) for pods in kind.list_created_pods(item.origin)]
        if templates:
            label = frameworks.get_mapping(metadata, "labels").get(names.FABRIC)
            warnings = (*keys.check_label(kind, label, workload.templates), *keys.check_workload(workload))
            templates[0] = msgspec.structs.replace(templates[0], warnings=warnings)
    for template in templates:
        try:
            msgspec.convert(template.pod, views.Pod)
        except msgspec.ValidationError as error:
            mismatch = object_files.describe_mismatch(error)
            raise output.UnreadableError(f"{template.owner}: {mismatch}") from None
    return templates


_LABEL_PLACES = {
    ("trainer.kubeflow.org", "TrainJob"): "spec.labels",
    ("serving.kserve.io", "InferenceService"): "spec.predictor.labels",
    # in v1alpha1; of v1beta1 the pods are read
    ("nvidia.com", "DynamoGraphDeployment"): "spec.services.NAME.extraPodMetadata.labels",
}
"""Kinds of objects from which another controller creates pods, and where their label belongs."""


def locate_label(tree: Tree) -> str:
    """Return where the label belongs in an object from which another controller creates pods, "" for other objects."""
    place = _LABEL_PLACES.get((str(tree.get("apiVersion", "")).rpartition("/")[0], tree["kind"]))
    return f"its controller creates the pods; label {names.FABRIC} goes into {place}" if place else ""


def check_train_job(tree: Tree) -> Iterator[reason.Reason]:
    """Yield a warning about a TrainJob whose label Trainer does not copy."""
    group = str(tree.get("apiVersion", "")).partition("/")[0]
    value = frameworks.get_mapping(tree, "metadata", "labels").get(names.FABRIC)
    is_train_job = (group, tree["kind"]) == ("trainer.kubeflow.org", "TrainJob")
    if is_train_job and value is not None and names.FABRIC not in frameworks.get_mapping(tree, "spec", "labels"):
        yield reason.Reason(
            AdmissionCode.LABEL_NOT_PASSED,
            f"label {names.FABRIC} {value!r} of the TrainJob has no effect: Trainer copies only spec.labels",
            fix="move it there",
        )


def _read_templates(kind: frameworks.WorkloadKind, tree: Tree, namespace: str) -> stored.Workload:
    if not kind.passes_label and isinstance(tree.get("metadata"), dict):
        labels = frameworks.get_mapping(tree, "metadata", "labels")
        own = {key: value for key, value in labels.items() if key != names.FABRIC}
        tree = {**tree, "metadata": {**tree["metadata"], "labels": own}}
    try:
        return stored.read_workload(kind, tree)
    except stored.UnreadableError as error:
        mismatch = object_files.describe_mismatch(error)
        raise output.UnreadableError(f"{format_title(tree, namespace)}: {mismatch}") from None


def _build_template(template: stored.Template, namespace: str, pods: frameworks.CreatedPods) -> Template:
    origin = template.origin
    tree = origin.ancestors[0]
    template_metadata = frameworks.get_mapping(origin.template, "metadata")
    labels = {**frameworks.get_mapping(template_metadata, "labels"), **origin.metadata.labels, **pods.labels}
    inherits_label = template.inherited is not None and names.FABRIC not in labels
    if inherits_label:
        labels[names.FABRIC] = template.inherited
    name = f"{origin.context.workload}{pods.name}"
    metadata: Tree = {"generateName" if name.endswith("-") else "name": name, "namespace": namespace}
    metadata |= {"labels": labels} if labels else {}
    annotations = {**frameworks.get_mapping(template_metadata, "annotations"), **pods.annotations}
    metadata |= {"annotations": annotations} if annotations else {}
    spec = copy.deepcopy(frameworks.get_mapping(origin.template, "spec"))
    _add_controller_metadata(spec, origin.metadata, pods.ssh_volume, origin.context.workload, name.rstrip("-"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return Template(
        format_title(tree, namespace),
        pods.part,
        pods.total,
        namespace,
        pod,
        path=origin.steps,
        requested=template.requested,
        inherits_label=inherits_label,
    )


def _add_controller_metadata(
    spec: Tree, added: frameworks.ControllerMetadata, ssh_volume: str, workload: str, pod: str
) -> None:
    """Add the variables and volumes that the controller adds. The API server rejects mounts of missing volumes."""
    claims = list(dict.fromkeys(volume.name for volume in added.volumes))
    volumes: list[Tree] = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in claims]
    mounts = [{"name": volume.name, "mountPath": volume.mount_path} for volume in added.volumes if volume.mount_path]
    if ssh_volume:  # the Secret with the keys of ranks that are started by ssh
        volumes.append({"name": ssh_volume, "secret": {"secretName": f"{workload}-ssh", "defaultMode": 0o600}})
        mounts.append({"name": ssh_volume, "mountPath": names.SSH_HOME})
    if volumes:
        own = frameworks.get_list(spec, "volumes")
        kept = [volume for volume in own if frameworks.get_mapping(volume).get("name") not in claims]
        spec["volumes"] = [*kept, *volumes]
    for container in frameworks.get_list(spec, "containers"):
        if isinstance(container, dict):
            _append_entries(container, "env", *({"name": variable, "value": ""} for variable in added.env))
            _append_entries(container, "volumeMounts", *mounts)


def _append_entries(tree: Tree, key: str, *entries: Tree) -> None:
    if entries:
        tree[key] = [*frameworks.get_list(tree, key), *entries]
