"""N45: RDMA needs locked memory, and the container may not lock any."""

from collections.abc import Iterator

from railwright.fabric.lint import hardware, model, taken
from railwright.fabric.policy import model as policies

_LOCK = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
_ROOT = 0
_SHARED = {"rdma/hca_shared_devices": 1}


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if ranks.capabilities is None or not taken.rdma_requested(ranks):
        return
    granted = ranks.privileged or not _LOCK.isdisjoint(ranks.capabilities)
    resources = ", ".join(sorted(hardware.rdma(ranks)))
    if granted and ranks.run_as_user not in {None, _ROOT}:
        yield model.Complaint(
            f"the container requests {resources} and runs as user {ranks.run_as_user}, for whom IPC_LOCK does not "
            "count: memory registration fails unless the nodes' runtime sets memlock unlimited; run as root, or set it"
        )
    elif not granted and not _known_unlimited(ranks.site.fabric):
        yield model.Complaint(
            f"the container requests {resources} without IPC_LOCK: memory registration fails unless the nodes' runtime "
            "sets memlock unlimited; add IPC_LOCK to securityContext.capabilities.add"
        )


def _known_unlimited(fabric: policies.Fabric | None) -> bool:
    """True where the policy grants nothing: its author knows the nodes."""
    return fabric is not None and not fabric.security.privileged and _LOCK.isdisjoint(fabric.security.capabilities)


RULE = model.Rule(
    code="N45",
    name="locked-memory",
    severity=model.Severity.WARNING,
    title="RDMA without the right to lock memory",
    explanation=(
        "An RDMA device pins the memory it reads and writes. That needs an unlimited memlock, which is a setting of "
        "the container runtime and not of the pod, or the capability IPC_LOCK. For a user other than root the "
        "capability alone does not work. A policy that grants neither is taken to know that its nodes allow it."
    ),
    source="NVIDIA/nvidia-container-toolkit issue 2037; NVIDIA/nccl-tests issue 206",
    good=(
        model.Example(
            "granted", model.Ranks("a rank", devices=_SHARED, capabilities=frozenset({"IPC_LOCK"}), run_as_user=0)
        ),
        model.Example("privileged", model.Ranks("a rank", devices=_SHARED, capabilities=frozenset(), privileged=True)),
        model.Example("no RDMA", model.Ranks("a rank", capabilities=frozenset())),
        model.Example("no pod is seen", model.Ranks("a rank", devices=_SHARED)),
    ),
    bad=(
        model.Example("not granted", model.Ranks("a rank", devices=_SHARED, capabilities=frozenset())),
        model.Example(
            "granted to a user",
            model.Ranks("a rank", devices=_SHARED, capabilities=frozenset({"IPC_LOCK"}), run_as_user=1000),
        ),
    ),
    check=_check,
)
