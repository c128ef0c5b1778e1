"""N41: groups of NICs to fuse that are empty or name an absent device."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "NCCL_NET_FORCE_MERGE"
_NODES = rule_types.FabricContext(devices=(("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"),))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    text = settings.strip_quotes(setting.value or "") if setting else ""
    if setting is None or not text:
        return
    groups = [_split_names(group) for group in text.removesuffix(";").split(";")]
    if not all(groups):
        yield settings.build_violation(
            setting, "has a group without a name, at which NCCL may loop for ever; write groups as a,b;c,d"
        )
    named = [name for group in groups for name in group]
    if absent := [settings.quote(name) for name in dict.fromkeys(named) if _is_absent(name, ctx.fabric_context)]:
        yield settings.build_violation(
            setting,
            f"{', '.join(absent)}: no node of the fabric has such a device, and NCCL fails at start; names are exact",
        )
    elif len(set(named)) < len(named):
        yield settings.build_violation(setting, "names a device twice, and NCCL fails at start; name each once")


def _split_names(group: str) -> list[str]:
    return [name for name in group.split(",") if name.partition(":")[0]]


def _is_absent(name: str, fabric_context: rule_types.FabricContext) -> bool:
    """True if no node type has the device. False if devices are assigned one by one: their names are not known."""
    if fabric_context.exclusive or not fabric_context.devices:
        return False
    return all(name.partition(":")[0] not in devices for devices in fabric_context.devices)


RULE = rule_types.Rule(
    code="N41",
    name="merge-groups",
    severity=rule_types.Severity.ERROR,
    title="A group of NCCL_NET_FORCE_MERGE is empty or names a device that is missing",
    explanation=(
        "Groups are separated by semicolons, and the exact names in a group by commas. A name that matches no "
        "device fails at start, and NCCL hangs on a group without a name."
    ),
    source="NVIDIA/nccl src/graph/topo.cc",
    good=(
        rule_types.build_example(
            "two pairs", settings.build_env(NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_1;mlx5_2,mlx5_3"), _NODES
        ),
        rule_types.build_example("a semicolon at the end", settings.build_env(NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_1;")),
    ),
    bad=(
        rule_types.build_example("an empty group", settings.build_env(NCCL_NET_FORCE_MERGE="mlx5_0;,;mlx5_1")),
        rule_types.build_example("nothing between semicolons", settings.build_env(NCCL_NET_FORCE_MERGE="a;;b")),
        rule_types.build_example("no such device", settings.build_env(NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_9"), _NODES),
    ),
    check=_check,
)
