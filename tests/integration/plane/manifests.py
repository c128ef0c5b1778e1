"""Builds the objects that tests create: policies, pods, workloads and others.

Each has the fields that nearly every test needs; a test names the others.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import devices

from plane import api
from railwright.fabric import names

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
RAILS = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
ONE_GPU: Mapping[str, str] = {"nvidia.com/gpu": "1"}
CALL = "railwright.io/rails"  # the resource for which schedulers ask about pods with claims alone
VOLCANO_JOB = "batch.volcano.sh/v1alpha1/Job"
_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Queue": "scheduling.volcano.sh/v1beta1",
    "NetworkAttachmentDefinition": "k8s.cni.cncf.io/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "PyTorchJob": "kubeflow.org/v1",
    "TFJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "SubjectAccessReview": "authorization.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
}


def build(kind: str, name: str, metadata: Mapping[str, Any] | None = None, **parts: Any) -> api.Object:
    """Return an object of a kind. `parts` are its fields beside the metadata, such as `spec`."""
    version = _VERSIONS.get(kind, "v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **(metadata or {})}, **parts}


def fabric(rails: int | Sequence[Mapping[str, Any]] = 1, **keys: Any) -> dict[str, Any]:
    """Return a fabric of a policy: InfiniBand with the first `rails` of `RAILS`, or these rails, without `resolve`."""
    if isinstance(rails, int):
        rails = [{"name": f"rail{k}", "resource": RAILS[k], "device": f"mlx5_{k}"} for k in range(rails)]
    return {"transport": "infiniband", "rails": [*rails], "resolve": "never", **keys}


def fabric_of_claims(**keys: Any) -> dict[str, Any]:
    """Return a fabric whose rails and GPUs are requested by claims, on nodes with the slices of `devices`."""
    rails = [{"name": f"rail{k}", "device": device} for k, device in enumerate(devices.RDMA_DEVICES)]
    claims = {"deviceClass": "dranet", "acceleratorClass": "gpu.nvidia.com"}
    return fabric(rails, gpusPerNode=8, claims=claims, **keys)


def policy(fabrics: Mapping[str, Mapping[str, Any]], **keys: Any) -> str:
    """Return the text of a policy."""
    document = {"apiVersion": "railwright.io/v1alpha1", **keys, "fabrics": fabrics}
    return json.dumps(document)


def pod(
    name: str = "p",
    fabric: str = "",
    *,
    limits: Mapping[str, Any] = ONE_GPU,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    container: Mapping[str, Any] | None = None,
    **spec: Any,
) -> api.Object:
    """Return a pod of one container that requests a GPU or these amounts, and the fabric if one is named."""
    metadata: dict[str, Any] = {"labels": {**({names.FABRIC: fabric} if fabric else {}), **(labels or {})}}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    amounts = {resource: str(amount) for resource, amount in limits.items()}
    made = {"name": "c", "image": "i", "resources": {"limits": amounts} if amounts else {}, **(container or {})}
    return build("Pod", name, metadata, spec={"containers": [made], **spec})


def workload(kind: str, template: api.Object, *, name: str = "t", replicas: int = 1, **spec: Any) -> api.Object:
    """Return a workload of a kind whose pods are like `template`, a pod; its name is their label `app`.

    It has the fabric's label of `template` too, as users write it.
    """
    metadata = {key: value for key, value in template["metadata"].items() if key != "name"}
    metadata["labels"] = {"app": name, **metadata["labels"]}
    made: dict[str, Any] = {"metadata": metadata, "spec": dict(template["spec"])}
    own = _copy_fabric(metadata["labels"])
    if kind == "Job":
        made["spec"]["restartPolicy"] = "Never"
        return build(kind, name, own, spec={"parallelism": replicas, "template": made, **spec})
    service = {"serviceName": name} if kind == "StatefulSet" else {}
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": made, **service, **spec}
    return build(kind, name, own, spec=spec)


def _copy_fabric(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return metadata with the label of a fabric, if there is one among these."""
    return {"labels": {names.FABRIC: labels[names.FABRIC]}} if names.FABRIC in labels else {}


def volcano_job(name: str, template: api.Object, replicas: Mapping[str, int], **spec: Any) -> api.Object:
    """Return a Volcano Job with `replicas` of each task, like `template`; all start or none."""
    metadata = {key: value for key, value in template["metadata"].items() if key != "name"}
    made = {"metadata": metadata, "spec": template["spec"]}
    tasks = [
        {"name": task, "replicas": count, "minAvailable": count, "template": made} for task, count in replicas.items()
    ]
    gang = {"minAvailable": sum(replicas.values()), "schedulerName": "volcano", "queue": "default", "tasks": tasks}
    job = build("Job", name, _copy_fabric(metadata["labels"]), spec={**gang, **spec})
    return job | {"apiVersion": "batch.volcano.sh/v1alpha1"}


def holder(node: str, limits: Mapping[str, Any], **metadata: Any) -> api.Object:
    """Return a pod that holds devices of a node, bound without a scheduler."""
    return pod(f"on-{node}", limits=limits, nodeName=node, **metadata)


def network(name: str, resource: str = "", **metadata: Any) -> api.Object:
    """Return a NetworkAttachmentDefinition, of a resource if one is named."""
    if resource:
        metadata["annotations"] = {names.NAD_RESOURCE_NAME: resource}
    return build("NetworkAttachmentDefinition", name, metadata, spec={"config": "{}"})
