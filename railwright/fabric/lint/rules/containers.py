"""Rules about the containers of a job: their memory, permissions and images, and the identity of their ranks."""

import re
from collections.abc import Iterator

from railwright.fabric import names, text
from railwright.fabric.lint import rule_types, settings

_IDENTITIES = {
    "NCCL_COMM_ID": "every communicator then meets at this one address, and the second fails",
    "NCCL_HOSTID": "pods on different nodes then take each other for neighbours and try shared memory",
}
_LOCKING = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
_ROOT = 0
# Nodes whose container runtime sets memlock to unlimited: the vendors' own manifests add no capability
# (awslabs/awsome-distributed-ai micro-benchmarks/nccl-tests/kubernetes, coreweave/nccl-tests mpi-operator).
_UNLIMITED_DEVICES = frozenset({"vpc.amazonaws.com/efa"})
_UNLIMITED_NODES = ("node.coreweave.cloud/", "backend.coreweave.cloud/")
_LEAST_SHARED_MEMORY = 1 << 30  # bytes (NVIDIA/nccl troubleshooting guide: 1 GB or more)
_UNLIMITED = 0
_WITHOUT_RANKS = re.compile(r"(?:^|/)(?:pause|gpu-?burn)(?=$|[:@])")  # images of programs that do not communicate
_MAX_IMAGES = 3  # that a message names


def _check_identity(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value and _is_shared(setting, ranks):
        yield f"is the same in all pods of the template: {_IDENTITIES[setting.name]}; remove it"


def _is_shared(setting: rule_types.Setting, ranks: rule_types.RankContext) -> bool:
    """True if several ranks get the value. A launcher's mpirun passes it to the whole job, a template to its pods."""
    has_several_ranks = (ranks.job or 1) > 1
    reaches_job = setting.origin is rule_types.Origin.MPIRUN or setting.name == "NCCL_COMM_ID"
    return (ranks.count or 1) > 1 or (has_several_ranks and reaches_job)


def _check_locked_memory(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ranks.capabilities is None or not settings.is_rdma_requested(ranks):
        return
    is_granted = ranks.privileged or not _LOCKING.isdisjoint(ranks.capabilities)
    if not is_granted and not _is_unlimited_by_policy(ranks) and not _is_unlimited_by_vendor(ranks):
        yield rule_types.Violation(
            f"the container requests {', '.join(sorted(ranks.rdma_devices))} without IPC_LOCK: memory registration "
            "fails unless the nodes' container runtime sets memlock to unlimited; add IPC_LOCK to "
            "securityContext.capabilities.add"
        )


def _is_unlimited_by_vendor(ranks: rule_types.RankContext) -> bool:
    """True for devices and nodes of vendors that set memlock to unlimited."""
    by_label = any(label.startswith(_UNLIMITED_NODES) for label in ranks.node_labels)
    return ranks.rdma_devices.keys() <= _UNLIMITED_DEVICES or by_label


def _is_unlimited_by_policy(ranks: rule_types.RankContext) -> bool:
    """True if the policy grants no permission to lock memory: its nodes are assumed to set memlock to unlimited."""
    fabric = ranks.fabric_context.fabric
    return fabric is not None and not fabric.security.privileged and _LOCKING.isdisjoint(fabric.security.capabilities)


def _check_user(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    is_granted = not _LOCKING.isdisjoint(ranks.capabilities or ()) or (
        ranks.privileged and settings.is_rdma_requested(ranks)
    )
    if not is_granted:
        return
    if ranks.run_as_user is None:
        user = "as a user other than root (runAsNonRoot)" if ranks.run_as_non_root else ""
    else:
        user = f"as user {ranks.run_as_user}" if ranks.run_as_user != _ROOT else ""
    if user:
        yield rule_types.Violation(
            f"the container runs {user}, and IPC_LOCK has an effect only for root: memory registration "
            "fails unless the nodes' container runtime sets memlock to unlimited; run as root, or set memlock"
        )


def _check_shared_memory(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ranks.accelerators < 2 or ranks.capabilities is None or _WITHOUT_RANKS.search(ranks.image or ""):
        return  # None: no pod is seen
    size = ranks.shared_memory
    if size is None and ranks.mounts.get(names.DEV_SHM) != "hostPath":
        yield rule_types.Violation(
            f"the container has {ranks.accelerators} accelerators and no memory volume at {names.DEV_SHM}, where the "
            "runtime gives 64 MiB; mount an emptyDir with medium: Memory there"
        )
    elif size is not None and _UNLIMITED < size < _LEAST_SHARED_MEMORY:
        yield rule_types.Violation(
            f"the memory volume at {names.DEV_SHM} holds {size} bytes, and {ranks.accelerators} accelerators need "
            "1Gi or more; raise its sizeLimit"
        )


def _check_images(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if len(ranks.images) > 1:
        images = text.join_first(sorted(settings.quote(image) for image in ranks.images), _MAX_IMAGES)
        yield rule_types.Violation(
            f"the ranks of this job run {images}: NCCL stops at start where its versions differ; "
            "use one image for all ranks"
        )


RULES = (
    rule_types.Rule("N39", frozenset(_IDENTITIES), _check_identity),
    rule_types.Rule("N45", needs=("devices",), check_ranks=_check_locked_memory),
    rule_types.Rule("N46", needs=("accelerators",), check_ranks=_check_shared_memory),
    rule_types.Rule("N48", needs=("images",), check_ranks=_check_images),
    rule_types.Rule("N64", needs=("run_as_user", "run_as_non_root"), check_ranks=_check_user),
)
