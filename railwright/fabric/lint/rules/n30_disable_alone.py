"""N30: NCCL_IB_DISABLE as the only switch to TCP."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_NAME = "NCCL_IB_DISABLE"
# Each of these selects a network or a plugin, or turns off the plugin of HPC-X as well.
_EXPLICIT_CHOICES = ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IBEXT_DISABLE")


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not effective_values.is_on(ctx, _NAME) or effective_values.is_on_efa(ctx):
        return
    if all(effective_values.is_unset(ctx, name) for name in _EXPLICIT_CHOICES):
        yield settings.build_violation(
            setting,
            "does not stop a network plugin in the image (HPC-X in NGC images, AWS, Google); to hold NCCL to TCP set "
            "NCCL_NET=Socket as well",
        )


RULE = rule_types.Rule(
    code="N30",
    name="disable-does-not-stop-plugins",
    severity=rule_types.Severity.WARNING,
    title="NCCL_IB_DISABLE alone does not restrict NCCL to TCP",
    explanation=(
        "The variable turns off NCCL's own RDMA transport only. Images with HPC-X (NGC) or another network plugin "
        "still use the plugin; that of HPC-X has its own switch, NCCL_IBEXT_DISABLE. NCCL_NET=Socket works for "
        "all of them."
    ),
    source="NVIDIA/nccl issue 676; Mellanox/nccl-rdma-sharp-plugins",
    good=(
        rule_types.build_example("with the network named", settings.build_env(NCCL_IB_DISABLE="1", NCCL_NET="Socket")),
        rule_types.build_example("without plugins", settings.build_env(NCCL_IB_DISABLE="1", NCCL_NET_PLUGIN="none")),
        rule_types.build_example("not disabled", settings.build_env(NCCL_IB_DISABLE="0")),
    ),
    bad=(rule_types.build_example("alone", settings.build_env(NCCL_IB_DISABLE="1")),),
    check=_check,
)
