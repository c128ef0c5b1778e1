"""N60: a name that still works and has a successor."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, row in settings.list_rows(ctx):
        if row.status == "deprecated":
            yield settings.build_violation(setting, f"is deprecated; {_suggest_fix(row)}")


def _suggest_fix(row: catalogue.Variable) -> str:
    """Return the fix. Of several successors, the last one is current."""
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
    good=(rule_types.build_example("the current names", settings.build_env(NCCL_MIN_CTAS="8", NCCL_MAX_CTAS="16")),),
    bad=(
        rule_types.build_example("channels", settings.build_env(NCCL_MIN_NCHANNELS="16")),
        rule_types.build_example("rings", settings.build_env(NCCL_MAX_NRINGS="4")),
        rule_types.build_example("a deprecated switch", settings.build_env(NCCL_LAUNCH_MODE="PARALLEL")),
    ),
    check=_check,
)
