"""N16: exact device names where the devices are virtual functions, allocated later."""

from collections.abc import Iterator

from railwright.fabric.lint import hardware, rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_IB_HCA"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value:
        return
    name_list = lists.parse(settings.strip_quotes(setting.value))
    if (
        not name_list.exact
        or name_list.exclude
        or not _uses_virtual_functions(ctx)
        or _are_named_by_policy(name_list, ctx)
    ):
        return
    yield settings.build_violation(
        setting, "names of virtual functions are not known before they are allocated; use a prefix, such as mlx5"
    )


def _uses_virtual_functions(ctx: rule_types.RankContext) -> bool:
    requested = hardware.find_rdma_devices(ctx)
    return bool(ctx.fabric_context.exclusive) and (not requested or any(map(hardware.is_virtual, requested)))


def _are_named_by_policy(name_list: lists.NameList, ctx: rule_types.RankContext) -> bool:
    """True if the policy names all devices of the list."""
    named = {device for devices in ctx.fabric_context.devices or () for device in devices}
    return bool(name_list.entries) and all(entry.name in named for entry in name_list.entries)


RULE = rule_types.Rule(
    code="N16",
    name="exact-list-for-virtual-functions",
    severity=rule_types.Severity.WARNING,
    title="Exact device names for virtual functions",
    explanation=(
        "A pod with SR-IOV gets any free functions, under names that differ from pod to pod. A list of physical "
        "functions matches nothing inside it, and NCCL silently continues over TCP."
    ),
    source="oracle-quickstart/oci-hpc-oke, recommended NCCL parameters by shape",
    good=(
        rule_types.build_example(
            "a prefix",
            settings.build_env(NCCL_IB_HCA="mlx5"),
            rule_types.FabricContext(exclusive=True),
            devices={"x/sriov_vf": 8},
        ),
    ),
    bad=(
        rule_types.build_example(
            "exact names",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
            rule_types.FabricContext(exclusive=True),
            devices={"nvidia.com/sriov-rdma-vf": 2},
        ),
    ),
    check=_check,
)
