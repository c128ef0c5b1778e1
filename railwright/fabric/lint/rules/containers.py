"""Rules about the containers of a job: their memory and permissions, and the files that NCCL reads."""

import re
from collections.abc import Iterator

from railwright.fabric import names
from railwright.fabric.lint.rule_types import (
    RankContext,
    Setting,
    Severity,
    Violation,
    rule,
)

_LOCK_CAPABILITIES = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
# Nodes whose container runtime sets memlock to unlimited: the vendors' own manifests add no capability
# (awslabs/awsome-distributed-ai micro-benchmarks/nccl-tests/kubernetes, coreweave/nccl-tests mpi-operator).
_UNLIMITED_DEVICES = frozenset({"vpc.amazonaws.com/efa"})
_UNLIMITED_NODES = ("node.coreweave.cloud/", "backend.coreweave.cloud/")


@rule("N45", Severity.WARNING)
def check_locked_memory(ranks: RankContext) -> Iterator[Violation]:
    """RDMA without permission to lock memory.

    An RDMA device pins the memory that it reads and writes. Pinning needs an unlimited memlock, which is a setting of
    the container runtime and not of the pod, or the capability IPC_LOCK. The runtime's default for memlock is 8 MiB or
    less; NCCL then uses TCP without an error. If the policy grants no capability, lint assumes that its nodes allow it;
    nodes of AWS with EFA and of CoreWeave are known to.

    Kubernetes adds capabilities to the bounding set only, so a process of another user than root does not have them.

    Source: NVIDIA/nvidia-container-toolkit issue 2037; NVIDIA/nccl-tests issue 206; capabilities(7), ambient
    capabilities.
    """
    is_granted = not _LOCK_CAPABILITIES.isdisjoint(ranks.capabilities or ())
    if is_granted or (ranks.privileged and ranks.is_rdma_requested):
        user = "a user other than root" if ranks.run_as_user is None else f"user {ranks.run_as_user}"
        if ranks.run_as_non_root if ranks.run_as_user is None else ranks.run_as_user != 0:
            yield Violation(
                f"the container runs as {user}, and IPC_LOCK has an effect only for root: memory registration fails "
                "unless the nodes' container runtime sets memlock to unlimited; run as root, or set memlock"
            )
    elif ranks.capabilities is not None and ranks.is_rdma_requested:
        fabric = ranks.fabric_context.fabric
        by_policy = (
            fabric and not fabric.security.privileged and _LOCK_CAPABILITIES.isdisjoint(fabric.security.capabilities)
        )
        by_label = any(label.startswith(_UNLIMITED_NODES) for label in ranks.node_labels)
        if not (by_policy or by_label or ranks.rdma_devices.keys() <= _UNLIMITED_DEVICES):
            yield Violation(
                f"the container requests {', '.join(sorted(ranks.rdma_devices))} without IPC_LOCK: memory registration "
                "fails unless the nodes' container runtime sets memlock to unlimited; add IPC_LOCK to "
                "securityContext.capabilities.add"
            )


LEAST_SHARED_MEMORY = 1 << 30  # bytes (NVIDIA/nccl troubleshooting guide: 1 GB or more)
_WITHOUT_RANKS = re.compile(r"(?:^|/)(?:pause|gpu-?burn)(?=$|[:@])")  # images of programs that do not communicate


@rule("N46", Severity.WARNING)
def check_shared_memory(ranks: RankContext) -> Iterator[Violation]:
    """Several GPUs without at least 1 GiB of shared memory.

    Ranks of a container exchange data through /dev/shm, as do PyTorch's data loaders. The default of container runtimes
    is 64 MiB, and NCCL fails with an error about shared memory or a bus error. A memory-backed emptyDir at /dev/shm of
    1 GiB or more fixes it.

    Source: NVIDIA/nccl troubleshooting guide, shared memory; NVIDIA/nccl issues 342 and 525.
    """
    if ranks.accelerators < 2 or ranks.capabilities is None or _WITHOUT_RANKS.search(ranks.image or ""):
        return  # capabilities are None if no pod is known
    size = ranks.shared_memory
    if size is None and ranks.mounts.get(names.DEV_SHM) != "hostPath":
        yield Violation(
            f"the container has two or more accelerators and no memory volume at {names.DEV_SHM}, where the runtime "
            "gives 64 MiB; mount an emptyDir with medium: Memory there"
        )
    elif size is not None and 0 < size < LEAST_SHARED_MEMORY:  # 0: unlimited
        volume, fix = f"the memory volume at {names.DEV_SHM}", "raise its sizeLimit"
        if ranks.mounts.get(names.DEV_SHM) == "policy":
            volume = f"the policy's {volume.removeprefix('the ')} (mounts.sharedMemory of the fabric)"
            fix = "ask the operator for more, or mount an emptyDir with medium: Memory there"
        yield Violation(
            f"{volume} holds {size / 2**20:g}Mi, but a container with two or more accelerators needs at least 1Gi; "
            f"{fix}"
        )


_TOPOLOGY = "NCCL_TOPO_FILE"
_READ_FILES = {
    _TOPOLOGY: "NCCL ignores a topology file that is missing",
    "NCCL_GRAPH_FILE": "NCCL fails at start when the graph file is missing",
}
_IMAGE_FOLDERS = ("/opt/amazon/",)  # images of AWS have the files of their plugin here
_DEFAULT_TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"  # NCCL looks here by default


@rule("N40", Severity.WARNING, settings=frozenset(_READ_FILES))
def check_topology_files(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """NCCL_TOPO_FILE or NCCL_GRAPH_FILE is not mounted, or is for another node type.

    Both files must be readable inside the container and match the node type. A missing topology file causes only an
    INFO line, and its tuning is lost; a missing graph file fails the start. NCCL takes the topology file of another
    node type without an error, and then pairs GPUs with NICs that are not beside them. Not reported: files in the
    directories of known images, and the file that the policy names.

    Source: NVIDIA/nccl src/graph/topo.cc and src/graph/search.cc; Azure/aks-rdma-infiniband
    tests/scenarios/nvidia-topology and crusoecloud/solutions-library cmk-nccltests, with a file for each node type.
    """
    path = setting.text
    of_policy = ranks.fabric_context.topology_file
    is_mounted = any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in ranks.mounts)
    is_present = is_mounted or path == _DEFAULT_TOPOLOGY or path.startswith(_IMAGE_FOLDERS)
    if not path or path == of_policy:
        return
    if setting.name == _TOPOLOGY and of_policy:
        yield f"the policy has another file for these nodes, {of_policy}; remove the variable"
    elif ranks.capabilities is not None and ranks.has_ranks and not is_present:
        yield f"no volume is mounted at this path, and {_READ_FILES[setting.name]}; mount it, unless the image has it"
