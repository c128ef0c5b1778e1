"""N15: a device list with devices that no node type of the fabric has."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_IB_HCA"
_SHAPES = (("mlx5_0", "mlx5_1"), ("mlx5_4", "mlx5_5"))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting, sets = ctx.get_setting(_NAME), ctx.fabric_context.devices
    if setting is None or not setting.value or not sets:
        return
    name_list = lists.parse(settings.strip_quotes(setting.value))
    unmatched_sets = [devices for devices in sets if not any(map(name_list.selects, devices))]
    if unmatched_sets:
        yield settings.build_violation(
            setting,
            f"selects none of {', '.join(unmatched_sets[0])}, the devices of the rails: NCCL would use TCP; name those",
        )
    elif not name_list.exclude:
        yield from _report_absent(setting, name_list, sets)


def _report_absent(
    setting: rule_types.Setting, name_list: lists.NameList, sets: tuple[tuple[str, ...], ...]
) -> Iterator[rule_types.Violation]:
    all_devices = dict.fromkeys(device for devices in sets for device in devices)
    absent = [
        settings.quote(entry.name)
        for entry in name_list.entries
        if not any(entry.matches(device, -1, exact=name_list.exact) for device in all_devices)
    ]
    if absent:
        yield settings.build_violation(
            setting,
            f"{', '.join(absent)}: no rail of the fabric has such a device; the rails have {', '.join(all_devices)}",
        )


RULE = rule_types.Rule(
    code="N15",
    name="absent-device",
    severity=rule_types.Severity.ERROR,
    title="The list names devices that the nodes do not have",
    explanation=(
        "If a list selects nothing, NCCL reports no error and continues over TCP. The known devices are those "
        "that the policy gives the rails of the fabric, for every node type on which the pod can run."
    ),
    source="NVIDIA/nccl src/transport/net_ib/init.cc",
    good=(
        rule_types.build_example(
            "devices of either node type",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1,mlx5_4,mlx5_5"),
            rule_types.FabricContext(devices=_SHAPES),
        ),
        rule_types.build_example(
            "excluding a device outside of the fabric",
            settings.build_env(NCCL_IB_HCA="^mlx5_9"),
            rule_types.FabricContext(devices=_SHAPES),
        ),
    ),
    bad=(
        rule_types.build_example(
            "another vendor's names", settings.build_env(NCCL_IB_HCA="erdma"), rule_types.FabricContext(devices=_SHAPES)
        ),
        rule_types.build_example(
            "nothing left on the second node type",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
            rule_types.FabricContext(devices=_SHAPES),
        ),
        rule_types.build_example(
            "one device too many",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_7"),
            rule_types.FabricContext(devices=(("mlx5_0", "mlx5_1"),)),
        ),
    ),
    check=_check,
)
