"""N52: two ways to tell UCX its GID."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_NAME = "UCX_IB_ROCE_SUBNETS"
_INDEX = "UCX_IB_GID_INDEX"
_AUTOMATIC = "auto"


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting, index = ranks.setting(_NAME), ranks.setting(_INDEX)
    if setting is None or index is None or (index.value or "").casefold() == _AUTOMATIC:
        return
    yield settings.complaint(setting, f"and {settings.format_setting(index)} exclude each other; remove one of them")


RULE = model.Rule(
    code="N52",
    name="ucx-gid-twice",
    severity=model.Severity.WARNING,
    title="UCX_IB_ROCE_SUBNETS together with UCX_IB_GID_INDEX",
    explanation=(
        "UCX chooses the GID either by subnet or by index. It refuses an interface for which both are given; an index "
        "of auto, its default, leaves the choice to the subnets."
    ),
    source="openucx/ucx src/uct/ib",
    good=(
        model.Example("subnets", model.Ranks("a rank", settings.env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16"))),
        model.Example(
            "an automatic index",
            model.Ranks("a rank", settings.env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16", UCX_IB_GID_INDEX="auto")),
        ),
    ),
    bad=(
        model.Example(
            "both", model.Ranks("a rank", settings.env(UCX_IB_ROCE_SUBNETS="192.168.0.0/16", UCX_IB_GID_INDEX="3"))
        ),
    ),
    check=_check,
)
