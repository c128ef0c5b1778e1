"""N35: a choice that leaves a function without any algorithm."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.nccl import algo_proto

_NAME = "NCCL_ALGO"


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value or effective_values.is_older(ctx, *algo_proto.SINCE):
        return
    try:
        words_by_function = algo_proto.parse(setting.value, algo_proto.ALGORITHMS)
    except algo_proto.InvalidChoiceError:  # N33's
        return
    functions_without_algorithm = [
        function
        for function, words in words_by_function.items()
        if words.isdisjoint(algo_proto.ALGORITHMS_BY_FUNCTION[function])
    ]
    if functions_without_algorithm:
        problem = f"leaves no algorithm for {', '.join(functions_without_algorithm)}, which then fail"
        yield settings.build_violation(setting, f"{problem}; add Ring, or limit it to a function")


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
        rule_types.build_example("Ring is left", settings.build_env(NCCL_ALGO="Ring,Tree")),
        rule_types.build_example("one function", settings.build_env(NCCL_ALGO="AllReduce:Tree")),
        rule_types.build_example("all but one", settings.build_env(NCCL_ALGO="^Tree")),
    ),
    bad=(
        rule_types.build_example("Tree for all", settings.build_env(NCCL_ALGO="Tree")),
        rule_types.build_example("all but Ring", settings.build_env(NCCL_ALGO="^Ring")),
        rule_types.build_example("PAT cannot reduce to all", settings.build_env(NCCL_ALGO="AllReduce:PAT")),
    ),
    check=_check,
)
