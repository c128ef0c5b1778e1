"""N64: IPC_LOCK for a container that does not run as root."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types

LOCKING = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
_ROOT = 0


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    is_granted = not LOCKING.isdisjoint(ctx.capabilities or ()) or (
        ctx.privileged and effective_values.is_rdma_requested(ctx)
    )
    if not is_granted:
        return
    if ctx.run_as_user is None:
        user = "as a user other than root (runAsNonRoot)" if ctx.run_as_non_root else ""
    else:
        user = f"as user {ctx.run_as_user}" if ctx.run_as_user != _ROOT else ""
    if user:
        yield rule_types.Violation(
            f"the container runs {user}, and IPC_LOCK has an effect only for root: memory registration "
            "fails unless the nodes' container runtime sets memlock to unlimited; run as root, or set memlock"
        )


RULES = (
    rule_types.Rule(
        code="N64",
        name="lock-memory-as-user",
        severity=rule_types.Severity.WARNING,
        title="IPC_LOCK on a container that is not root",
        explanation=(
            "Kubernetes adds capabilities to the bounding set only, so a process of another user than root does not "
            "have them. The container runtime's default for memlock is 8 MiB or less; NCCL then uses TCP "
            "without an error."
        ),
        source="NVIDIA/nvidia-container-toolkit issue 2037; capabilities(7), ambient capabilities",
        check=_check,
    ),
)
