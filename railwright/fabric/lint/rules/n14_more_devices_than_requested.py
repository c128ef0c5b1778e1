"""N14: a device list with more entries than the pod has devices, or than NCCL reads."""

from collections.abc import Iterator

from railwright.fabric.lint import hardware, rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_IB_HCA"
_UNLIMITED = 1 << 20  # entries: only to count them


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value:
        return
    name_list = lists.parse(settings.strip_quotes(setting.value), _UNLIMITED)
    count = len(name_list.entries)
    if count > lists.MAX_DEVICES:
        yield settings.build_violation(
            setting, f"names {count} devices; NCCL reads the first {lists.MAX_DEVICES}: shorten it"
        )
    requested = sum(hardware.find_rdma_devices(ctx).values())
    if ctx.fabric_context.exclusive and not name_list.exclude and 0 < requested < count:
        yield settings.build_violation(
            setting,
            f"names {count} devices, and the container requests {requested}: the others are not in the pod; request "
            f"{count} or name {requested}",
        )


RULE = rule_types.Rule(
    code="N14",
    name="more-devices-than-requested",
    severity=rule_types.Severity.ERROR,
    title="More devices are named than the pod has",
    explanation=(
        "If a device plugin assigns devices exclusively (SR-IOV, eRDMA, EFA), a pod has as many as it requests. "
        "NCCL reads at most 32 entries of the list."
    ),
    source="NVIDIA/nccl src/transport/net_ib/init.cc; sriov-network-device-plugin",
    good=(
        rule_types.build_example(
            "a prefix for all its devices",
            settings.build_env(NCCL_IB_HCA="mlx5"),
            rule_types.FabricContext(exclusive=True),
            devices={"example.com/sriov_vf": 4},
        ),
        rule_types.build_example(
            "a shared plugin shows all devices of the host",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
            rule_types.FabricContext(exclusive=False),
            devices={"rdma/hca_shared": 1},
        ),
    ),
    bad=(
        rule_types.build_example(
            "two named, one requested",
            settings.build_env(NCCL_IB_HCA="mlx5_0,mlx5_1"),
            rule_types.FabricContext(exclusive=True),
            devices={"example.com/sriov_vf": 1},
        ),
        rule_types.build_example(
            "33 entries", settings.build_env(NCCL_IB_HCA="=" + ",".join(f"mlx5_{n}" for n in range(33)))
        ),
    ),
    check=_check,
)
