"""N60: a name that still works and has a successor."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.rows(ctx):
        if row.status == "deprecated":
            yield settings.violation(setting, f"is deprecated; {_advice(row)}")


def _advice(row: catalogue.Variable) -> str:
    """The last of several successors is the one of today."""
    successor = (row.deprecated_by or "").rpartition("/")[2].strip()
    return f"use {successor}" if successor.startswith(catalogue.PREFIX) else "remove it"


RULE = rule_types.Rule(
    code="N60",
    name="deprecated-variable",
    severity=rule_types.Severity.INFO,
    title="The variable is deprecated",
    explanation=(
        "Rings and channels became thread blocks (CTAs), and NCCL_CHECK_POINTERS became NCCL_CHECK_MODE. NCCL "
        "still reads the old names, but may remove them."
    ),
    source="NVIDIA/nccl user guide and its release tags",
    good=(rule_types.example("the current names", settings.env(NCCL_MIN_CTAS="8", NCCL_MAX_CTAS="16")),),
    bad=(
        rule_types.example("channels", settings.env(NCCL_MIN_NCHANNELS="16")),
        rule_types.example("rings", settings.env(NCCL_MAX_NRINGS="4")),
        rule_types.example("a deprecated switch", settings.env(NCCL_LAUNCH_MODE="PARALLEL")),
    ),
    check=_check,
)
