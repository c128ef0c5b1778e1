"""N45: the container requests RDMA devices and may not lock memory."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, hardware, rule_types
from railwright.fabric.policy import model as policies

_LOCK = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
_ROOT = 0
_SHARED = {"rdma/hca_shared_devices": 1}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.capabilities is None or not effective_values.is_rdma_requested(ctx):
        return
    granted = ctx.privileged or not _LOCK.isdisjoint(ctx.capabilities)
    resources = ", ".join(sorted(hardware.find_rdma_devices(ctx)))
    if granted and ctx.run_as_user not in {None, _ROOT}:
        yield rule_types.Violation(
            f"the container requests {resources} and runs as user {ctx.run_as_user}, but IPC_LOCK works only for "
            "root: memory registration fails unless the nodes' container runtime sets memlock to unlimited; run as "
            "root, or set memlock to unlimited"
        )
    elif not granted and not _is_assumed_unlimited(ctx.fabric_context.fabric):
        yield rule_types.Violation(
            f"the container requests {resources} without IPC_LOCK: memory registration fails unless the nodes' "
            "container runtime sets memlock to unlimited; add IPC_LOCK to securityContext.capabilities.add"
        )


def _is_assumed_unlimited(fabric: policies.Fabric | None) -> bool:
    """True if the policy grants no permission to lock memory: its nodes are assumed to set memlock to unlimited."""
    return fabric is not None and not fabric.security.privileged and _LOCK.isdisjoint(fabric.security.capabilities)


RULE = rule_types.Rule(
    code="N45",
    name="locked-memory",
    severity=rule_types.Severity.WARNING,
    title="RDMA without permission to lock memory",
    explanation=(
        "An RDMA device pins the memory that it reads and writes. That needs an unlimited memlock, which is a "
        "setting of the container runtime and not of the pod, or the capability IPC_LOCK. For a user other than "
        "root the capability alone does not work. If the policy grants neither, lint assumes that its nodes allow "
        "it."
    ),
    source="NVIDIA/nvidia-container-toolkit issue 2037; NVIDIA/nccl-tests issue 206",
    good=(
        rule_types.build_example("granted", devices=_SHARED, capabilities=frozenset({"IPC_LOCK"}), run_as_user=0),
        rule_types.build_example("privileged", devices=_SHARED, capabilities=frozenset(), privileged=True),
        rule_types.build_example("no RDMA", capabilities=frozenset()),
        rule_types.build_example("capabilities unknown", devices=_SHARED),
    ),
    bad=(
        rule_types.build_example("not granted", devices=_SHARED, capabilities=frozenset()),
        rule_types.build_example(
            "granted to a user other than root", devices=_SHARED, capabilities=frozenset({"IPC_LOCK"}), run_as_user=1000
        ),
    ),
    check=_check,
)
