"""N56: more than the one PVRDMA device a machine can have."""

import re
from collections.abc import Iterator

from railwright.fabric.lint import hardware, rule_types, settings
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_HCA"
_DEVICE = "vmw_pvrdma"
_RESOURCE = re.compile(r"(?<![a-z])pvrdma(?![a-z])")
_PVRDMA = rule_types.FabricContext(transport=policies.Transport.PVRDMA)
_LIMIT = "a virtual machine has one PVRDMA device, and it talks to others of its kind only"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if (
        setting is not None
        and setting.value
        and _names_several(settings.strip_quotes(setting.value), ctx.fabric_context.transport)
    ):
        yield settings.build_violation(setting, f"{_LIMIT}; name that one")
    if problem := _check_request(ctx):
        yield rule_types.Violation(f"{problem}: {_LIMIT}; request one device")
    fabric = ctx.fabric_context.fabric
    if fabric is not None and fabric.transport is policies.Transport.PVRDMA and len(fabric.rails) > 1:
        yield rule_types.Violation(f"the policy's fabric has {len(fabric.rails)} rails: {_LIMIT}; keep one rail")


def _names_several(value: str, transport: policies.Transport | None) -> bool:
    name_list = lists.parse(value)
    named = {entry.name for entry in name_list.entries}
    paravirtual = transport is policies.Transport.PVRDMA or any(name.startswith(_DEVICE) for name in named)
    return paravirtual and not name_list.exclude and len(named) > 1


def _check_request(ctx: rule_types.RankContext) -> str | None:
    """Return the problem of the requested devices, or None. The amount of a shared resource is no number of devices."""
    requested = hardware.find_rdma_devices(ctx)
    paravirtual = [name for name in requested if _RESOURCE.search(name.lower())]
    if not paravirtual and ctx.fabric_context.transport is not policies.Transport.PVRDMA:
        return None
    return f"the container requests {', '.join(sorted(requested))}" if len(requested) > 1 else None


RULE = rule_types.Rule(
    code="N56",
    name="one-pvrdma-device",
    severity=rule_types.Severity.ERROR,
    title="More than one PVRDMA device, or PVRDMA beside other HCAs",
    explanation=(
        "VMware gives a virtual machine one paravirtual RDMA device, which connects to other PVRDMA devices only. "
        "Several rails, or a mix with mlx5 devices, cannot work; use passthrough devices for several rails."
    ),
    source="Broadcom knowledge base 328676; linux-rdma/rdma-core providers/vmw_pvrdma",
    good=(
        rule_types.build_example("one", settings.build_env(NCCL_IB_HCA="vmw_pvrdma0"), _PVRDMA),
        rule_types.build_example("two devices elsewhere", settings.build_env(NCCL_IB_HCA="mlx5_0,mlx5_1")),
    ),
    bad=(
        rule_types.build_example("two rails", settings.build_env(NCCL_IB_HCA="vmw_pvrdma0,vmw_pvrdma1"), _PVRDMA),
        rule_types.build_example("beside an HCA", settings.build_env(NCCL_IB_HCA="vmw_pvrdma0,mlx5_0")),
        rule_types.build_example("two resources", devices={"rdma/pvrdma": 1, "rdma/hca_shared_devices": 1}),
    ),
    check=_check,
)
