"""N35: a choice that leaves a function without any algorithm."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.nccl import algo_proto

_NAME = "NCCL_ALGO"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.setting(_NAME)
    if setting is None or not setting.value or effective_values.is_older(ctx, *algo_proto.SINCE):
        return
    try:
        chosen = algo_proto.parse(setting.value, algo_proto.ALGORITHMS)
    except algo_proto.InvalidChoiceError:  # N33's
        return
    bare = [
        function for function, words in chosen.items() if words.isdisjoint(algo_proto.ALGORITHMS_BY_FUNCTION[function])
    ]
    if bare:
        yield settings.violation(
            setting, f"leaves no algorithm for {', '.join(bare)}, which then fail; add Ring, or limit it to a function"
        )


RULE = rule_types.Rule(
    code="N35",
    name="no-algorithm-left",
    severity=rule_types.Severity.WARNING,
    title="NCCL_ALGO leaves a function without an algorithm",
    explanation=(
        "Broadcast and Reduce exist with Ring only, AllGather and ReduceScatter with Ring, PAT, NVLS and "
        "CollNetDirect, AllReduce with all but PAT. A list for all functions that lacks Ring leaves some without "
        "an algorithm, and their first call fails. Releases before 2.24 keep Ring for them."
    ),
    source="NVIDIA/nccl src/graph/tuning.cc; user guide, NCCL_ALGO",
    good=(
        rule_types.example("Ring is left", settings.env(NCCL_ALGO="Ring,Tree")),
        rule_types.example("one function", settings.env(NCCL_ALGO="AllReduce:Tree")),
        rule_types.example("all but one", settings.env(NCCL_ALGO="^Tree")),
    ),
    bad=(
        rule_types.example("Tree for all", settings.env(NCCL_ALGO="Tree")),
        rule_types.example("all but Ring", settings.env(NCCL_ALGO="^Ring")),
        rule_types.example("PAT cannot reduce to all", settings.env(NCCL_ALGO="AllReduce:PAT")),
    ),
    check=_check,
)
