"""N60: a name that still works and has a successor."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings
from railwright.fabric.nccl import catalogue


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    for setting, row in settings.rows(ctx):
        if row.status == "deprecated":
            yield settings.violation(setting, f"is deprecated; {_advice(row)}")


def _advice(row: catalogue.Variable) -> str:
    """The last of several successors is the one of today."""
    successor = (row.deprecated_by or "").rpartition("/")[2].strip()
    return f"use {successor}" if successor.startswith(catalogue.PREFIX) else "remove it"


RULE = model.Rule(
    code="N60",
    name="deprecated-variable",
    severity=model.Severity.INFO,
    title="The variable is deprecated",
    explanation=(
        "Rings and channels became thread blocks (CTAs), and NCCL_CHECK_POINTERS became NCCL_CHECK_MODE. NCCL "
        "still reads the old names, but may remove them."
    ),
    source="NVIDIA/nccl user guide and its release tags",
    good=(model.example("the current names", settings.env(NCCL_MIN_CTAS="8", NCCL_MAX_CTAS="16")),),
    bad=(
        model.example("channels", settings.env(NCCL_MIN_NCHANNELS="16")),
        model.example("rings", settings.env(NCCL_MAX_NRINGS="4")),
        model.example("a deprecated switch", settings.env(NCCL_LAUNCH_MODE="PARALLEL")),
    ),
    check=_check,
)
