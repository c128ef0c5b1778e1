"""N15: a device list that names what no node type of the fabric has."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_IB_HCA"
_SHAPES = (("mlx5_0", "mlx5_1"), ("mlx5_4", "mlx5_5"))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting, sets = ctx.setting(_NAME), ctx.fabric_context.devices
    if setting is None or not setting.value or not sets:
        return
    name_list = lists.parse(settings.bare(setting.value))
    empty = [devices for devices in sets if not any(map(name_list.selects, devices))]
    if empty:
        yield settings.violation(
            setting, f"selects none of {', '.join(empty[0])}, the devices of the rails: NCCL would use TCP; name those"
        )
    elif not name_list.exclude:
        yield from _absent(setting, name_list, sets)


def _absent(
    setting: rule_types.Setting, name_list: lists.NameList, sets: tuple[tuple[str, ...], ...]
) -> Iterator[rule_types.Violation]:
    every = dict.fromkeys(device for devices in sets for device in devices)
    lacking = [
        settings.quote(entry.name)
        for entry in name_list.entries
        if not any(entry.matches(device, -1, exact=name_list.exact) for device in every)
    ]
    if lacking:
        yield settings.violation(
            setting, f"{', '.join(lacking)}: no rail of the fabric has such a device; the rails have {', '.join(every)}"
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
        rule_types.example(
            "devices of either node type",
            settings.env(NCCL_IB_HCA="=mlx5_0,mlx5_1,mlx5_4,mlx5_5"),
            rule_types.FabricContext(devices=_SHAPES),
        ),
        rule_types.example(
            "excluding a device outside of the fabric",
            settings.env(NCCL_IB_HCA="^mlx5_9"),
            rule_types.FabricContext(devices=_SHAPES),
        ),
    ),
    bad=(
        rule_types.example(
            "another vendor's names", settings.env(NCCL_IB_HCA="erdma"), rule_types.FabricContext(devices=_SHAPES)
        ),
        rule_types.example(
            "nothing left on the second node type",
            settings.env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
            rule_types.FabricContext(devices=_SHAPES),
        ),
        rule_types.example(
            "one device too many",
            settings.env(NCCL_IB_HCA="=mlx5_0,mlx5_7"),
            rule_types.FabricContext(devices=(("mlx5_0", "mlx5_1"),)),
        ),
    ),
    check=_check,
)
