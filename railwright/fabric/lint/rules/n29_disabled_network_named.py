"""N29: NCCL_NET requires a network that is turned off."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_NAME = "NCCL_NET"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if (
        setting is None
        or (setting.value or "").casefold() != "ib"
        or not effective_values.is_on(ctx, "NCCL_IB_DISABLE")
    ):
        return
    yield settings.build_violation(
        setting, "with NCCL_IB_DISABLE on there is no such network, and NCCL fails at start; remove one of the two"
    )


RULE = rule_types.Rule(
    code="N29",
    name="required-network-disabled",
    severity=rule_types.Severity.ERROR,
    title="NCCL_NET=IB together with NCCL_IB_DISABLE",
    explanation=(
        "NCCL_NET names the only network that NCCL may use, in any letter case, and NCCL fails at start if it is "
        "absent. With NCCL_IB_DISABLE=1 the network IB is absent."
    ),
    source="NVIDIA/nccl src/plugin/net.cc",
    good=(
        rule_types.build_example("required", settings.build_env(NCCL_NET="IB", NCCL_IB_DISABLE="0")),
        rule_types.build_example("restricted to TCP", settings.build_env(NCCL_NET="Socket", NCCL_IB_DISABLE="1")),
    ),
    bad=(
        rule_types.build_example("both", settings.build_env(NCCL_NET="IB", NCCL_IB_DISABLE="1")),
        rule_types.build_example("in small letters", settings.build_env(NCCL_IB_DISABLE="1", NCCL_NET="ib")),
    ),
    check=_check,
)
