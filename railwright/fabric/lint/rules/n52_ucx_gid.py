"""N52: UCX_IB_ROCE_SUBNETS and UCX_IB_GID_INDEX both choose the GID."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_NAME = "UCX_IB_ROCE_SUBNETS"
_INDEX = "UCX_IB_GID_INDEX"
_AUTOMATIC = "auto"


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    setting, index = ctx.setting(_NAME), ctx.setting(_INDEX)
    if setting is None or index is None or (index.value or "").casefold() == _AUTOMATIC:
        return
    yield settings.violation(
        setting,
        f"conflicts with {settings.format_setting(index)}, and UCX rejects the interface; remove one of the two",
    )


RULE = model.Rule(
    code="N52",
    name="ucx-gid-twice",
    severity=model.Severity.WARNING,
    title="UCX_IB_ROCE_SUBNETS together with UCX_IB_GID_INDEX",
    explanation=(
        "UCX chooses the GID either by subnet or by index, and rejects an interface if both are set. With the "
        "default index, auto, the subnets decide."
    ),
    source="openucx/ucx src/uct/ib",
    good=(
        model.example("subnets", settings.env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16")),
        model.example(
            "an automatic index", settings.env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16", UCX_IB_GID_INDEX="auto")
        ),
    ),
    bad=(model.example("both", settings.env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16", UCX_IB_GID_INDEX="3")),),
    check=_check,
)
