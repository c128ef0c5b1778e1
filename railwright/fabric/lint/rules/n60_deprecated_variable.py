"""N60: a name that still works and has a successor."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings
from railwright.fabric.nccl import catalogue


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    for setting, row in settings.rows(ranks):
        if row.status == "deprecated":
            yield settings.complaint(setting, f"is deprecated; {_advice(row)}")


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
        "Rings and channels became thread blocks (CTAs), and NCCL_CHECK_POINTERS became NCCL_CHECK_MODE. The old names "
        "are still read, for as long as NCCL keeps them."
    ),
    source="NVIDIA/nccl user guide and its release tags",
    good=(
        model.Example("the names of today", model.Ranks("a rank", settings.env(NCCL_MIN_CTAS="8", NCCL_MAX_CTAS="16"))),
    ),
    bad=(
        model.Example("channels", model.Ranks("a rank", settings.env(NCCL_MIN_NCHANNELS="16"))),
        model.Example("rings", model.Ranks("a rank", settings.env(NCCL_MAX_NRINGS="4"))),
        model.Example("a retired switch", model.Ranks("a rank", settings.env(NCCL_LAUNCH_MODE="PARALLEL"))),
    ),
    check=_check,
)
