"""N45: the container requests RDMA devices and may not lock memory."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, hardware, rule_types
from railwright.fabric.lint.rules import lock_memory_as_user
from railwright.fabric.policy import model as policies

_SHARED = {"rdma/hca_shared_devices": 1}
# Nodes whose container runtime sets memlock to unlimited: the vendors' own manifests add no capability
# (awslabs/awsome-distributed-ai micro-benchmarks/nccl-tests/kubernetes, coreweave/nccl-tests mpi-operator).
_UNLIMITED_DEVICES = frozenset({"vpc.amazonaws.com/efa"})
_UNLIMITED_NODES = ("node.coreweave.cloud/", "backend.coreweave.cloud/")


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.capabilities is None or not effective_values.is_rdma_requested(ctx):
        return
    granted = ctx.privileged or not lock_memory_as_user.LOCKING.isdisjoint(ctx.capabilities)
    if granted or _is_assumed_unlimited(ctx.fabric_context.fabric) or _is_known_unlimited(ctx):
        return
    resources = ", ".join(sorted(hardware.find_rdma_devices(ctx)))
    yield rule_types.Violation(
        f"the container requests {resources} without IPC_LOCK: memory registration fails unless the nodes' "
        "container runtime sets memlock to unlimited; add IPC_LOCK to securityContext.capabilities.add"
    )


def _is_known_unlimited(ctx: rule_types.RankContext) -> bool:
    """True for devices and nodes of vendors that set memlock to unlimited."""
    devices = set(hardware.find_rdma_devices(ctx))
    return devices <= _UNLIMITED_DEVICES or any(label.startswith(_UNLIMITED_NODES) for label in ctx.node_labels)


def _is_assumed_unlimited(fabric: policies.Fabric | None) -> bool:
    """True if the policy grants no permission to lock memory: its nodes are assumed to set memlock to unlimited."""
    return (
        fabric is not None
        and not fabric.security.privileged
        and lock_memory_as_user.LOCKING.isdisjoint(fabric.security.capabilities)
    )


RULE = rule_types.Rule(
    code="N45",
    name="locked-memory",
    severity=rule_types.Severity.WARNING,
    title="RDMA without permission to lock memory",
    explanation=(
        "An RDMA device pins the memory that it reads and writes. That needs an unlimited memlock, which is a "
        "setting of the container runtime and not of the pod, or the capability IPC_LOCK. If the "
        "policy grants neither, lint assumes that its nodes allow it; nodes of AWS with EFA and of CoreWeave are "
        "known to."
    ),
    source="NVIDIA/nvidia-container-toolkit issue 2037; NVIDIA/nccl-tests issue 206",
    good=(
        rule_types.build_example("granted", devices=_SHARED, capabilities=frozenset({"IPC_LOCK"}), run_as_user=0),
        rule_types.build_example("privileged", devices=_SHARED, capabilities=frozenset(), privileged=True),
        rule_types.build_example("no RDMA", capabilities=frozenset()),
        rule_types.build_example("capabilities unknown", devices=_SHARED),
        rule_types.build_example(
            "nodes that allow it", devices={"vpc.amazonaws.com/efa": 32}, capabilities=frozenset()
        ),
    ),
    bad=(rule_types.build_example("not granted", devices=_SHARED, capabilities=frozenset()),),
    check=_check,
)
