"""N13: a device name without = that is also the beginning of other devices' names."""

from collections.abc import Iterator

import msgspec

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_IB_HCA"
_DEVICES = (("mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11"),)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value or ctx.fabric_context.devices is None:
        return
    name_list = lists.parse(settings.strip_quotes(setting.value))
    if name_list.exact:
        return
    exactly = msgspec.structs.replace(name_list, exact=True, exclude=False)
    for entry in name_list.entries:
        others = (
            _list_unintended_matches(entry, exactly, ctx.fabric_context.devices) if entry.name[-1].isdigit() else ()
        )
        if others:
            verb = "excludes" if name_list.exclude else "takes"
            mark = "^=" if name_list.exclude else "="
            yield settings.build_violation(
                setting,
                f"{settings.quote(entry.name)} is a prefix and also {verb} {', '.join(others)}; "
                f"put {mark} in front of the list for exact names",
            )


def _list_unintended_matches(
    entry: lists.Entry, exactly: lists.NameList, sets: tuple[tuple[str, ...], ...]
) -> tuple[str, ...]:
    """Return the devices that the entry also matches as a prefix, and that an exact list would not select."""
    names = dict.fromkeys(device for devices in sets for device in devices)
    return tuple(name for name in names if _ends_inside_number(entry.name, name) and not exactly.selects(name))


def _ends_inside_number(prefix: str, name: str) -> bool:
    """True if the prefix ends inside a number of the name, as mlx5_1 does in mlx5_10: it was meant as a name."""
    return name.startswith(prefix) and name[len(prefix) :][:1].isdigit()


RULE = rule_types.Rule(
    code="N13",
    name="prefix-takes-more",
    severity=rule_types.Severity.WARNING,
    title="A device name without = also matches longer names",
    explanation="Without =, each entry of NCCL_IB_HCA is a prefix: mlx5_1 also matches mlx5_10 to mlx5_19.",
    source="NVIDIA/nccl src/misc/utils.cc, run on the extracted grammar",
    good=(
        rule_types.build_example(
            "exact names",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
            fabric_context=rule_types.FabricContext(devices=_DEVICES),
        ),
        rule_types.build_example(
            "an intended prefix",
            settings.build_env(NCCL_IB_HCA="mlx5"),
            fabric_context=rule_types.FabricContext(devices=_DEVICES),
        ),
    ),
    bad=(
        rule_types.build_example(
            "mlx5_1 takes mlx5_10",
            settings.build_env(NCCL_IB_HCA="mlx5_0,mlx5_1"),
            fabric_context=rule_types.FabricContext(devices=_DEVICES),
        ),
    ),
    check=_check,
)
