"""A small job that shows whether a fabric carries RDMA: whole nodes, one label, an all-reduce, a log that tells.

Owns the manifests, as trees. Nothing of the network is written into them: that is what admission is for. Knows no
cluster; what it asks of a node is the policy's `gpusPerNode`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fabric import names
from fabric.policy import model as policies

Tree = dict[str, Any]

# Published images with NCCL, libibverbs and their programs; any other by --image.
MPI_IMAGE = "ghcr.io/coreweave/nccl-tests:12.9.1-devel-ubuntu24.04-nccl2.29.2-1-d73ec07"  # with sshd and nccl-tests
TORCH_IMAGE = "nvcr.io/nvidia/pytorch:25.08-py3"
_PERF = "/opt/nccl_tests/build/all_reduce_perf"
_SWEEP = ("-b", "512M", "-e", "8G", "-f", "2", "-g", "1")  # sizes at which bandwidth, not latency, is measured
_GPUS = 8  # of a node where the policy does not say
_PORT = 23456  # where torchrun's ranks meet
_DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}  # knowledge nccl.md 1.13: devices, network, channels

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


class Wish(msgspec.Struct, frozen=True):
    """What the job should be."""

    fabric: str
    nodes: int = 2
    kind: str = "mpijob"
    image: str = ""  # "" for the published one
    namespace: str = "default"
    name: str = "railwright-verify"


def of(document: policies.FabricPolicy, wish: Wish) -> list[Tree]:
    """The objects to create, in order. `wish.fabric` is one of the policy."""
    gpus = document.fabrics[wish.fabric].gpus_per_node or _GPUS
    return _KINDS[wish.kind](wish, document.accelerators[0], gpus)


def ways() -> Sequence[str]:
    """The kinds of job there are."""
    return tuple(_KINDS)


def logs(wish: Wish) -> str:
    """The command that gives the logs of all of its pods."""
    where = f"kubectl -n {wish.namespace} logs --prefix --tail=-1 --max-log-requests={max(5, wish.nodes)}"
    return f"{where} -l {_LABELS[wish.kind].format(name=wish.name)}"


def _mpi(wish: Wish, accelerator: str, gpus: int) -> list[Tree]:
    forwarded = [word for name in _DEBUG for word in ("-x", name)]  # sshd gives ranks nothing of the worker's env
    command = ["mpirun", "--allow-run-as-root", "--tag-output", "-np", str(wish.nodes * gpus), "--map-by", "slot",
               "--bind-to", "none", "-x", "PATH", "-x", "LD_LIBRARY_PATH", *forwarded, _PERF, *_SWEEP]  # fmt: skip
    image = wish.image or MPI_IMAGE
    launcher = {"name": "mpi", "image": image, "env": _env(), "command": command}
    worker = {"name": "nccl-tests", "image": image, "command": ["/usr/sbin/sshd", "-De"],
              "resources": {"limits": {accelerator: str(gpus)}}}  # fmt: skip
    spec = {
        "slotsPerWorker": gpus,
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": _template(wish, launcher)},
            "Worker": {"replicas": wish.nodes, "restartPolicy": "Never", "template": _template(wish, worker)},
        },
    }
    return [_object("kubeflow.org/v2beta1", "MPIJob", wish, spec)]


def _pytorch(wish: Wish, accelerator: str, gpus: int) -> list[Tree]:
    def replicas(number: int) -> Tree:
        container = _torchrun("pytorch", wish, accelerator, gpus, "$(RANK)", "$(MASTER_ADDR)")
        return {"replicas": number, "restartPolicy": "Never", "template": _template(wish, container)}

    specs = {"Master": replicas(1)} | ({"Worker": replicas(wish.nodes - 1)} if wish.nodes > 1 else {})
    return [_object("kubeflow.org/v1", "PyTorchJob", wish, {"pytorchReplicaSpecs": specs})]


def _volcano(wish: Wish, accelerator: str, gpus: int) -> list[Tree]:
    def task(name: str, number: int) -> Tree:
        container = _torchrun("pytorch", wish, accelerator, gpus, "$(RANK)", "$(MASTER_ADDR)")
        return {"name": name, "replicas": number, "template": _template(wish, container, restartPolicy="Never")}

    spec = {
        "schedulerName": "volcano",
        "minAvailable": wish.nodes,
        "plugins": {"pytorch": ["--master=master", "--worker=worker", f"--port={_PORT}"], "svc": []},
        "tasks": [task("master", 1), *([task("worker", wish.nodes - 1)] if wish.nodes > 1 else [])],
    }
    return [_object("batch.volcano.sh/v1alpha1", "Job", wish, spec)]


def _batch(wish: Wish, accelerator: str, gpus: int) -> list[Tree]:
    first = f"{wish.name}-0.{wish.name}"
    container = _torchrun("torch", wish, accelerator, gpus, "$(JOB_COMPLETION_INDEX)", first)
    spec = {
        "completions": wish.nodes,
        "parallelism": wish.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": _template(wish, container, subdomain=wish.name, restartPolicy="Never"),
    }
    peers = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {names.BATCH_JOB: wish.name}}
    return [_object("v1", "Service", wish, peers), _object("batch/v1", "Job", wish, spec)]


def _torchrun(name: str, wish: Wish, accelerator: str, gpus: int, rank: str, master: str) -> Tree:  # noqa: PLR0913, PLR0917 - one container, by its parts
    command = ["torchrun", f"--nnodes={wish.nodes}", f"--nproc-per-node={gpus}", f"--node-rank={rank}",
               f"--master-addr={master}", f"--master-port={_PORT}", "--no-python", "python", "-c", _TORCH]  # fmt: skip
    resources = {"limits": {accelerator: str(gpus)}}
    return {"name": name, "image": wish.image or TORCH_IMAGE, "env": _env(), "command": command, "resources": resources}


def _env() -> list[Tree]:
    return [{"name": name, "value": value} for name, value in _DEBUG.items()]


def _template(wish: Wish, container: Tree, **more: Any) -> Tree:
    metadata = {"labels": {names.FABRIC: wish.fabric}}
    return {"metadata": metadata, "spec": {**more, "containers": [container]}}


def _object(version: str, kind: str, wish: Wish, spec: Tree) -> Tree:
    metadata = {"name": wish.name, "namespace": wish.namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


_KINDS: Mapping[str, Callable[[Wish, str, int], list[Tree]]] = {
    "mpijob": _mpi,
    "pytorchjob": _pytorch,
    "volcano": _volcano,
    "job": _batch,
}
_LABELS = {  # which pods have a log; mpirun's has those of all ranks
    "mpijob": "training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher",
    "pytorchjob": "training.kubeflow.org/job-name={name}",
    "volcano": "volcano.sh/job-name={name}",
    "job": "batch.kubernetes.io/job-name={name}",
}
