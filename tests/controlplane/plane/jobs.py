"""The smallest job of each controller, and waiting for the pods it makes of it.

Owns the manifests. Refuses to know who carries them out.
"""

from collections.abc import Mapping
from typing import Any

from plane import api, waiting

Container = dict[str, Any]
_IMAGE = "image"  # kwok pulls nothing
_REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}


def template(container: str, *, gpus: int = 1, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return a pod template of one container that asks for `gpus` GPUs, none where 0."""
    made: Container = {"name": container, "image": _IMAGE, "command": ["run"]}
    if gpus:
        made["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    metadata = {"metadata": {"labels": dict(labels)}} if labels else {}
    return {**metadata, "spec": {"containers": [made]}}


def mpi_job(
    name: str,
    *,
    workers: int = 2,
    launcher_as_worker: bool = False,
    launcher_gpus: int = 0,
    labels: Mapping[str, str] | None = None,
) -> api.Object:
    """Return a job of mpi-operator: a launcher, and workers with a GPU each."""
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "runLauncherAsWorker": launcher_as_worker,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template("mpi", gpus=launcher_gpus, labels=labels)},
                "Worker": {"replicas": workers, "template": template("mpi", labels=labels)},
            },
        },
    }


def pytorch_job(name: str, *, workers: int = 1, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return a job of training-operator: a master and workers, each a rank."""
    return _training_job("PyTorchJob", name, "pytorch", {"Master": 1, "Worker": workers}, labels)


def tf_job(name: str, *, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return a job of training-operator: a chief and a worker."""
    return _training_job("TFJob", name, "tensorflow", {"Chief": 1, "Worker": 1}, labels)


def xgboost_job(name: str, *, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return a job of training-operator: a master and a worker."""
    return _training_job("XGBoostJob", name, "xgboost", {"Master": 1, "Worker": 1}, labels)


def paddle_job(name: str, *, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return a job of training-operator: two workers."""
    return _training_job("PaddleJob", name, "paddle", {"Worker": 2}, labels)


def jax_job(name: str, *, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return a job of training-operator: two workers."""
    return _training_job("JAXJob", name, "jax", {"Worker": 2}, labels)


def job_set(name: str, *, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return two replicated jobs: one driver without GPUs, and one job of two workers."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "replicatedJobs": [
                _build_replicated_job("driver", 1, template("driver", gpus=0, labels=labels)),
                _build_replicated_job("workers", 2, template("worker", labels=labels)),
            ]
        },
    }


def leader_worker_set(name: str, *, size: int = 3, labels: Mapping[str, str] | None = None) -> api.Object:
    """Return one group of `size` pods, the leader among them."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": size,
                "leaderTemplate": template("leader", labels=labels),
                "workerTemplate": template("worker", labels=labels),
            },
        },
    }


def of_kubeflow(name: str) -> str:
    """Return the selector of a Kubeflow job's pods."""
    return f"training.kubeflow.org/job-name={name}"


async def pods(client: api.Api, namespace: str, labels: str, count: int, *, seconds: float = 60) -> api.Objects:
    """Wait until exactly `count` pods of a label selector run; by name."""

    async def all_running() -> api.Objects:
        listed = await client.list("Pod", namespace, labels=labels)
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in listed}
        assert list(phases.values()) == ["Running"] * count, phases
        return sorted(listed, key=lambda pod: str(pod["metadata"]["name"]))

    return await waiting.wait(all_running, seconds=seconds, describe=f"{count} running pods with labels {labels}")


def _training_job(
    kind: str, name: str, container: str, replicas: Mapping[str, int], labels: Mapping[str, str] | None
) -> api.Object:
    made = {
        role: {"replicas": count, "restartPolicy": "Never", "template": template(container, labels=labels)}
        for role, count in replicas.items()
    }
    spec = {_REPLICA_SPECS[kind]: made}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _build_replicated_job(name: str, completions: int, pod: api.Object) -> api.Object:
    spec = {"parallelism": completions, "completions": completions, "template": pod}
    spec["template"] = {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}}
    return {"name": name, "replicas": 1, "template": {"spec": spec}}
