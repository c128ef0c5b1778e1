"""Builds manifests of a small all-reduce job that verifies a fabric: whole nodes, one label, NCCL's log at INFO.

The manifests contain nothing about the network, because admission adds it. The number of GPUs of a node is the policy's
`gpusPerNode`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import batch

Tree = dict[str, Any]

# Published images with NCCL and libibverbs; --image replaces them.
MPI_IMAGE = "ghcr.io/coreweave/nccl-tests:12.9.1-devel-ubuntu24.04-nccl2.29.2-1-d73ec07"  # with sshd and nccl-tests
TORCH_IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"
_PERF = "/opt/nccl_tests/build/all_reduce_perf"
_SWEEP = ("-b", "512M", "-e", "8G", "-f", "2", "-g", "1")  # sizes at which bandwidth, not latency, is measured
_GPUS = 8  # of a node, if the policy has no gpusPerNode
_PORT = 23456  # rendezvous port of torchrun
_DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}  # logs devices, network and channels

_TORCH = """\
import os, time, torch, torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
ranks, speeds = dist.get_world_size(), []
for size in (2**29, 2**30, 2**31, 2**32):
    data = torch.ones(size // 4, device="cuda")
    for turn in range(25):
        if turn == 5:  # the first five warm up
            torch.cuda.synchronize(); start = time.perf_counter()
        dist.all_reduce(data, op=dist.ReduceOp.MAX)
    torch.cuda.synchronize()
    speeds.append(size / ((time.perf_counter() - start) / 20) / 1e9 * 2 * (ranks - 1) / ranks)
    wrong = int((data != 1).sum())
    if dist.get_rank() == 0:
        print(f"# {size} B: busbw {speeds[-1]:.2f} GB/s", flush=True)
        print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}", flush=True)
if dist.get_rank() == 0:
    print(f"# Avg bus bandwidth    : {sum(speeds) / len(speeds):.2f}", flush=True)
dist.destroy_process_group()
"""


class JobOptions(msgspec.Struct, frozen=True):
    """Options of the job."""

    fabric: str
    nodes: int = 2
    kind: str = "mpijob"
    image: str = ""  # "" for the published image
    namespace: str = "default"
    name: str = "railwright-verify"


def build(document: policies.FabricPolicy, options: JobOptions) -> list[Tree]:
    """Return the objects to create, in order. `options.fabric` must be a fabric of the policy."""
    gpus = document.fabrics[options.fabric].gpus_per_node or _GPUS
    return _KINDS[options.kind](options, document.accelerators[0], gpus)


def list_kinds() -> Sequence[str]:
    """Return the supported values of `JobOptions.kind`."""
    return tuple(_KINDS)


def logs_command(options: JobOptions) -> str:
    """Return the kubectl command that prints the logs of all pods of the job."""
    command = f"kubectl -n {options.namespace} logs --prefix --tail=-1 --max-log-requests={max(5, options.nodes)}"
    return f"{command} -l {_LABELS[options.kind].format(name=options.name)}"


def _mpi(options: JobOptions, accelerator: str, gpus: int) -> list[Tree]:
    # sshd does not pass on the environment of the worker's container
    forwarded = [word for name in _DEBUG for word in ("-x", name)]
    command = ["mpirun", "--allow-run-as-root", "--tag-output", "-np", str(options.nodes * gpus), "--map-by", "slot",
               "--bind-to", "none", "-x", "PATH", "-x", "LD_LIBRARY_PATH", *forwarded, _PERF, *_SWEEP]  # fmt: skip
    image = options.image or MPI_IMAGE
    launcher = {"name": "mpi", "image": image, "env": _env(), "command": command}
    worker = {"name": "nccl-tests", "image": image, "command": ["/usr/sbin/sshd", "-De"],
              "resources": {"limits": {accelerator: str(gpus)}}}  # fmt: skip
    spec = {
        "slotsPerWorker": gpus,
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _template(options, launcher)},
            "Worker": {"replicas": options.nodes, "restartPolicy": "Never", "template": _template(options, worker)},
        },
    }
    return [_object("kubeflow.org/v2beta1", "MPIJob", options, spec)]


def _pytorch(options: JobOptions, accelerator: str, gpus: int) -> list[Tree]:
    def replicas(number: int) -> Tree:
        container = _torchrun("pytorch", options, accelerator, gpus, "$(RANK)", "$(MASTER_ADDR)")
        return {"replicas": number, "restartPolicy": "Never", "template": _template(options, container)}

    specs = {"Master": replicas(1)} | ({"Worker": replicas(options.nodes - 1)} if options.nodes > 1 else {})
    return [_object("kubeflow.org/v1", "PyTorchJob", options, {"pytorchReplicaSpecs": specs})]


def _volcano(options: JobOptions, accelerator: str, gpus: int) -> list[Tree]:
    def task(name: str, number: int) -> Tree:
        container = _torchrun("pytorch", options, accelerator, gpus, "$(RANK)", "$(MASTER_ADDR)")
        return {"name": name, "replicas": number, "template": _template(options, container, restartPolicy="Never")}

    spec = {
        "schedulerName": "volcano",
        "minAvailable": options.nodes,
        "plugins": {"pytorch": ["--master=master", "--worker=worker", f"--port={_PORT}"], "svc": []},
        "tasks": [task("master", 1), *([task("worker", options.nodes - 1)] if options.nodes > 1 else [])],
    }
    return [_object("batch.volcano.sh/v1alpha1", "Job", options, spec)]


def _batch(options: JobOptions, accelerator: str, gpus: int) -> list[Tree]:
    first = f"{options.name}-0.{options.name}"
    container = _torchrun("torch", options, accelerator, gpus, "$(JOB_COMPLETION_INDEX)", first)
    spec = {
        "completions": options.nodes,
        "parallelism": options.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": _template(options, container, subdomain=options.name, restartPolicy="Never"),
    }
    peers = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {batch.JOB: options.name}}
    return [_object("v1", "Service", options, peers), _object("batch/v1", "Job", options, spec)]


def _torchrun(name: str, options: JobOptions, accelerator: str, gpus: int, rank: str, master: str) -> Tree:  # noqa: PLR0913, PLR0917 - the parts of one container
    command = ["torchrun", f"--nnodes={options.nodes}", f"--nproc-per-node={gpus}", f"--node-rank={rank}",
               f"--master-addr={master}", f"--master-port={_PORT}", "--no-python", "python", "-c", _TORCH]  # fmt: skip
    resources = {"limits": {accelerator: str(gpus)}}
    return {
        "name": name,
        "image": options.image or TORCH_IMAGE,
        "env": _env(),
        "command": command,
        "resources": resources,
    }


def _env() -> list[Tree]:
    return [{"name": name, "value": value} for name, value in _DEBUG.items()]


def _template(options: JobOptions, container: Tree, **more: Any) -> Tree:
    metadata = {"labels": {names.FABRIC: options.fabric}}
    return {"metadata": metadata, "spec": {**more, "containers": [container]}}


def _object(version: str, kind: str, options: JobOptions, spec: Tree) -> Tree:
    metadata = {"name": options.name, "namespace": options.namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


_KINDS: Mapping[str, Callable[[JobOptions, str, int], list[Tree]]] = {
    "mpijob": _mpi,
    "pytorchjob": _pytorch,
    "volcano": _volcano,
    "job": _batch,
}
_LABELS = {  # selectors of the pods whose logs are needed; mpirun's launcher has the lines of all ranks
    "mpijob": "training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher",
    "pytorchjob": "training.kubeflow.org/job-name={name}",
    "volcano": "volcano.sh/job-name={name}",
    "job": "batch.kubernetes.io/job-name={name}",
}
