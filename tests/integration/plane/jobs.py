"""The smallest job of each controller."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from plane import api, manifests

_ONE_GPU = {"nvidia.com/gpu": 1}
_RUN = {"image": "image", "command": ["run"]}  # kwok pulls nothing


def _template(container: str, limits: Mapping[str, int] = _ONE_GPU, **spec: Any) -> api.Object:
    made_pod = manifests.pod(limits=limits, container=_RUN | {"name": container}, **spec)["spec"]
    return {"spec": made_pod}


def _training_job(kind: str, field: str, container: str, name: str, **replicas: int) -> api.Object:
    made = {
        role: {"replicas": count, "restartPolicy": "Never", "template": _template(container)}
        for role, count in replicas.items()
    }
    return manifests.build(kind, name, spec={field: made})


def mpi_job(
    name: str, *, workers: int = 2, launcher_limits: Mapping[str, int] | None = None, **spec: Any
) -> api.Object:
    """Return a job of mpi-operator: a launcher, and workers with a GPU each."""
    launcher = {"replicas": 1, "template": _template("mpi", launcher_limits or {})}
    replicas = {"Launcher": launcher, "Worker": {"replicas": workers, "template": _template("mpi")}}
    return manifests.build("MPIJob", name, spec={"mpiReplicaSpecs": replicas, **spec})


def pytorch_job(name: str, *, workers: int = 1) -> api.Object:
    """Return a job of training-operator: a master and workers, each a rank."""
    return _training_job("PyTorchJob", "pytorchReplicaSpecs", "pytorch", name, Master=1, Worker=workers)


def tf_job(name: str) -> api.Object:
    """Return a job of training-operator: a chief and a worker."""
    return _training_job("TFJob", "tfReplicaSpecs", "tensorflow", name, Chief=1, Worker=1)


def job_set(name: str) -> api.Object:
    """Return two replicated jobs: one driver without GPUs, and one job of two workers."""
    replicated = [
        {"name": job, "replicas": 1, "template": {"spec": {"parallelism": count, "completions": count, **pods}}}
        for job, count, pods in (
            ("driver", 1, {"template": _template("driver", {}, restartPolicy="Never")}),
            ("workers", 2, {"template": _template("worker", restartPolicy="Never")}),
        )
    ]
    return manifests.build("JobSet", name, spec={"replicatedJobs": replicated})


def leader_worker_set(name: str) -> api.Object:
    """Return one group of three pods, the leader among them."""
    group = {"size": 3, "leaderTemplate": _template("leader"), "workerTemplate": _template("worker")}
    return manifests.build("LeaderWorkerSet", name, spec={"replicas": 1, "leaderWorkerTemplate": group})


def select_kubeflow_pods(name: str) -> str:
    """Return the selector of a Kubeflow job's pods."""
    return f"training.kubeflow.org/job-name={name}"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of job: its controller, the builder of its smallest job, and the selector of its pods."""

    controller: str
    build: Callable[[str], api.Object]
    selector: Callable[[str], str] = select_kubeflow_pods


KINDS = {
    "MPIJob": Kind("mpi-operator", mpi_job),
    "PyTorchJob": Kind("training-operator", pytorch_job),
    "TFJob": Kind("training-operator", tf_job),
    "JobSet": Kind("jobset", job_set, "jobset.sigs.k8s.io/jobset-name={}".format),
    "LeaderWorkerSet": Kind("lws", leader_worker_set, "leaderworkerset.sigs.k8s.io/name={}".format),
}
