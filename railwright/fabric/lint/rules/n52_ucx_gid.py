"""N52: UCX_IB_ROCE_SUBNETS and UCX_IB_GID_INDEX both choose the GID."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "UCX_IB_ROCE_SUBNETS"
_INDEX = "UCX_IB_GID_INDEX"
_AUTOMATIC = "auto"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting, index = ctx.get_setting(_NAME), ctx.get_setting(_INDEX)
    if setting is None or index is None or (index.value or "").casefold() == _AUTOMATIC:
        return
    yield settings.build_violation(
        setting,
        f"conflicts with {settings.format_setting(index)}, and UCX rejects the interface; remove one of the two",
    )


RULE = rule_types.Rule(
    code="N52",
    name="ucx-gid-twice",
    severity=rule_types.Severity.WARNING,
    title="UCX_IB_ROCE_SUBNETS together with UCX_IB_GID_INDEX",
    explanation=(
        "UCX chooses the GID either by subnet or by index, and rejects an interface if both are set. With the "
        "default index, auto, the subnets decide."
    ),
    source="openucx/ucx src/uct/ib",
    good=(
        rule_types.build_example("subnets", settings.build_env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16")),
        rule_types.build_example(
            "an automatic index", settings.build_env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16", UCX_IB_GID_INDEX="auto")
        ),
    ),
    bad=(
        rule_types.build_example(
            "both", settings.build_env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16", UCX_IB_GID_INDEX="3")
        ),
    ),
    check=_check,
)
