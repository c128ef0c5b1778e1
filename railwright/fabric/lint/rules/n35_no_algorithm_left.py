"""N35: a choice that leaves a function without any algorithm."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken
from railwright.fabric.nccl import algo_proto

_NAME = "NCCL_ALGO"


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or not setting.value or taken.is_older(ranks, *algo_proto.SINCE):
        return
    try:
        chosen = algo_proto.parse(setting.value, algo_proto.ALGORITHMS)
    except algo_proto.InvalidChoiceError:  # N33's
        return
    bare = [
        function for function, words in chosen.items() if words.isdisjoint(algo_proto.ALGORITHMS_BY_FUNCTION[function])
    ]
    if bare:
        yield settings.complaint(
            setting, f"leaves no algorithm for {', '.join(bare)}, which then fail; add Ring, or limit it to a function"
        )


RULE = model.Rule(
    code="N35",
    name="no-algorithm-left",
    severity=model.Severity.WARNING,
    title="NCCL_ALGO leaves a function without an algorithm",
    explanation=(
        "Broadcast and Reduce exist with Ring only, AllGather and ReduceScatter with Ring, PAT, NVLS and CollNetDirect,"
        " AllReduce with all but PAT. A list without Ring that holds for all functions leaves some with none, and "
        "their first call fails. Releases before 2.24 keep Ring for them."
    ),
    source="NVIDIA/nccl src/graph/tuning.cc; user guide, NCCL_ALGO",
    good=(
        model.Example("Ring is left", model.Ranks("a rank", settings.env(NCCL_ALGO="Ring,Tree"))),
        model.Example("one function", model.Ranks("a rank", settings.env(NCCL_ALGO="AllReduce:Tree"))),
        model.Example("all but one", model.Ranks("a rank", settings.env(NCCL_ALGO="^Tree"))),
    ),
    bad=(
        model.Example("Tree for all", model.Ranks("a rank", settings.env(NCCL_ALGO="Tree"))),
        model.Example("all but Ring", model.Ranks("a rank", settings.env(NCCL_ALGO="^Ring"))),
        model.Example("PAT cannot reduce to all", model.Ranks("a rank", settings.env(NCCL_ALGO="AllReduce:PAT"))),
    ),
    check=_check,
)
