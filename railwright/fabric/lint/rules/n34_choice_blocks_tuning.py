"""N34: NCCL_ALGO or NCCL_PROTO is set at all."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken
from railwright.fabric.policy import model as policies

_NAMES = frozenset({"NCCL_ALGO", "NCCL_PROTO"})


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    effect = "turns off the tuner of the EFA plugin" if taken.on_efa(ranks) else "keeps NCCL from choosing by itself"
    for setting in settings.effective(ranks):
        if setting.name in _NAMES and setting.value != "":  # an empty value is N11's
            yield settings.complaint(setting, f"{effect}, for every size and function; remove it outside of benchmarks")


RULE = model.Rule(
    code="N34",
    name="choice-blocks-tuning",
    severity=model.Severity.WARNING,
    title="NCCL_ALGO or NCCL_PROTO takes the choice from NCCL",
    explanation=(
        "NCCL chooses algorithm and protocol for each function and size from what it knows of the machine. A fixed "
        "choice outlives the measurement it came from, LL128 can corrupt data on machines that do not support it, and "
        "on EFA either variable turns off the vendor's tuner."
    ),
    source="NVIDIA/nccl user guide, NCCL_ALGO and NCCL_PROTO; aws-ofi-nccl doc/efa-env-var.md",
    good=(model.Example("left to NCCL", model.Ranks("a rank", settings.env(NCCL_DEBUG="WARN"))),),
    bad=(
        model.Example("an algorithm", model.Ranks("a rank", settings.env(NCCL_ALGO="Ring"))),
        model.Example(
            "a protocol on EFA",
            model.Ranks("a rank", settings.env(NCCL_PROTO="Simple"), model.Site(transport=policies.Transport.EFA)),
        ),
        model.Example("from elsewhere", model.Ranks("a rank", settings.env(NCCL_ALGO=None))),
    ),
    check=_check,
)
