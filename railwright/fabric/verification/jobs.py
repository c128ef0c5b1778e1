"""Builds manifests of a small all-reduce job that verifies a fabric: whole nodes, one label, NCCL's log at INFO.

The manifests contain nothing about the network, because admission adds it. The number of GPUs of a node is the policy's
`gpusPerNode`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import names
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import frameworks, kubeflow, kubernetes, volcano

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
    return JOBS[options.kind].build(_Parts(options, document.accelerators[0], gpus))


def build_logs_command(options: JobOptions) -> str:
    """Return the kubectl command that prints the logs of all pods of the job."""
    command = f"kubectl -n {options.namespace} logs --prefix --tail=-1 --max-log-requests={max(5, options.nodes)}"
    return f"{command} -l {JOBS[options.kind].selector.format(name=options.name)}"


class _Parts:
    """The parts of a job that runs one rank on each GPU of `nodes` whole nodes."""

    def __init__(self, options: JobOptions, accelerator: str, gpus: int) -> None:
        self._options = options
        self._gpu_limit = {"limits": {accelerator: str(gpus)}}
        self.name = options.name
        self.nodes = options.nodes
        self.gpus = gpus
        self.port = _PORT

    def build_object(self, api_version: str, kind: str, spec: Tree) -> Tree:
        metadata = {"name": self.name, "namespace": self._options.namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def build_template(self, container: Tree, **pod_spec: Any) -> Tree:
        metadata = {"labels": {names.FABRIC: self._options.fabric}}
        return {"metadata": metadata, "spec": {**pod_spec, "containers": [container]}}

    def build_launcher(self) -> Tree:
        # sshd does not pass on the environment of the worker's container
        forwarded = [word for name in _DEBUG for word in ("-x", name)]
        ranks = str(self.nodes * self.gpus)
        mpirun = [
            "mpirun",
            "--allow-run-as-root",
            "--tag-output",
            "-np",
            ranks,
            "--map-by",
            "slot",
            "--bind-to",
            "none",
        ]
        command = [*mpirun, "-x", "PATH", "-x", "LD_LIBRARY_PATH", *forwarded, _PERF, *_SWEEP]
        return {"name": "mpi", "image": self._options.image or MPI_IMAGE, "env": _build_env(), "command": command}

    def build_ssh_worker(self) -> Tree:
        image = self._options.image or MPI_IMAGE
        command = ["/usr/sbin/sshd", "-De"]
        return {"name": "nccl-tests", "image": image, "command": command, "resources": self._gpu_limit}

    def build_torch_rank(self, name: str, node_rank: str, master: str) -> Tree:
        command = ["torchrun", f"--nnodes={self.nodes}", f"--nproc-per-node={self.gpus}", f"--node-rank={node_rank}"]
        command += [f"--master-addr={master}", f"--master-port={self.port}", "--no-python", "python", "-c", _TORCH]
        image = self._options.image or TORCH_IMAGE
        return {"name": name, "image": image, "env": _build_env(), "command": command, "resources": self._gpu_limit}


def _build_env() -> list[Tree]:
    return [{"name": name, "value": value} for name, value in _DEBUG.items()]


def _build_job(parts: _Parts) -> list[Tree]:
    first = f"{parts.name}-0.{parts.name}"
    container = parts.build_torch_rank("torch", "$(JOB_COMPLETION_INDEX)", first)
    spec = {
        "completions": parts.nodes,
        "parallelism": parts.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": parts.build_template(container, subdomain=parts.name, restartPolicy="Never"),
    }
    peers = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {kubernetes.JOB: parts.name}}
    return [parts.build_object("v1", "Service", peers), parts.build_object("batch/v1", "Job", spec)]


def _build_volcano_job(parts: _Parts) -> list[Tree]:
    def build_task(name: str, replicas: int) -> Tree:
        container = parts.build_torch_rank("pytorch", "$(RANK)", "$(MASTER_ADDR)")
        return {"name": name, "replicas": replicas, "template": parts.build_template(container, restartPolicy="Never")}

    workers = [build_task("worker", parts.nodes - 1)] if parts.nodes > 1 else []
    spec = {
        "schedulerName": "volcano",
        "minAvailable": parts.nodes,
        "plugins": {"pytorch": ["--master=master", "--worker=worker", f"--port={parts.port}"], "svc": []},
        "tasks": [build_task("master", 1), *workers],
    }
    return [parts.build_object("batch.volcano.sh/v1alpha1", "Job", spec)]


def _build_mpi_job(parts: _Parts) -> list[Tree]:
    def build_replicas(replicas: int, container: Tree) -> Tree:
        return {"replicas": replicas, "restartPolicy": "Never", "template": parts.build_template(container)}

    spec = {
        "slotsPerWorker": parts.gpus,
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "mpiReplicaSpecs": {
            "Launcher": build_replicas(1, parts.build_launcher()),
            "Worker": build_replicas(parts.nodes, parts.build_ssh_worker()),
        },
    }
    return [parts.build_object("kubeflow.org/v2beta1", "MPIJob", spec)]


def _build_pytorch_job(parts: _Parts) -> list[Tree]:
    def build_replicas(replicas: int) -> Tree:
        container = parts.build_torch_rank("pytorch", "$(RANK)", "$(MASTER_ADDR)")
        return {"replicas": replicas, "restartPolicy": "Never", "template": parts.build_template(container)}

    specs = {"Master": build_replicas(1)} | ({"Worker": build_replicas(parts.nodes - 1)} if parts.nodes > 1 else {})
    return [parts.build_object("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": specs})]


class _Kind(NamedTuple):
    """A way to run the job. `selector` selects the pods with logs that matter; `{name}` is the job's name."""

    selector: str
    build: Callable[[_Parts], list[Tree]]  # the objects to create, in order


JOBS: Mapping[str, _Kind] = {  # by the value of --kind
    "volcano": _Kind(f"{volcano.JOB}={{name}}", _build_volcano_job),
    # mpirun's launcher has the output of all ranks
    "mpijob": _Kind(f"{kubeflow.JOB}={{name}},{kubeflow.ROLE}={frameworks.LAUNCHER}", _build_mpi_job),
    "pytorchjob": _Kind(f"{kubeflow.JOB}={{name}}", _build_pytorch_job),
    "job": _Kind(f"{kubernetes.JOB}={{name}}", _build_job),
}
