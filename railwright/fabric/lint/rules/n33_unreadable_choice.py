"""N33: NCCL_ALGO or NCCL_PROTO is not written in their grammar."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.nccl import algo_proto

WORDS: Mapping[str, tuple[str, ...]] = {"NCCL_ALGO": algo_proto.ALGORITHMS, "NCCL_PROTO": algo_proto.PROTOCOLS}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if effective_values.is_older(ctx, *algo_proto.SINCE):
        return
    for setting, value in settings.list_values(ctx):
        if setting.name not in WORDS:
            continue
        try:
            algo_proto.parse(value, WORDS[setting.name])
        except algo_proto.InvalidChoiceError as error:
            yield settings.build_violation(setting, f"{error}. NCCL 2.24 and newer fail at start; correct or remove it")


RULE = rule_types.Rule(
    code="N33",
    name="unreadable-choice",
    severity=rule_types.Severity.ERROR,
    title="NCCL_ALGO or NCCL_PROTO does not follow the grammar",
    explanation=(
        "Entries are separated by semicolons. Each is a list, or a function, a colon and a list; only the first "
        "may lack its function. A leading ^ inverts a list. Letter case does not matter, blanks do. An unknown "
        "word or function fails at start since 2.24; older releases ignore it, and are not reported."
    ),
    source="NVIDIA/nccl src/graph/tuning.cc",
    good=(
        rule_types.build_example("a list", settings.build_env(NCCL_ALGO="Ring,Tree", NCCL_PROTO="^ll128")),
        rule_types.build_example("functions", settings.build_env(NCCL_ALGO="Ring;allreduce:tree,ring;AllGather:^PAT")),
        rule_types.build_example("a release that ignores it", settings.build_env(NCCL_ALGO="CollNet"), nccl=(2, 19)),
    ),
    bad=(
        rule_types.build_example("no such algorithm", settings.build_env(NCCL_ALGO="Rings")),
        rule_types.build_example("a blank", settings.build_env(NCCL_PROTO="LL, Simple")),
        rule_types.build_example("no such function", settings.build_env(NCCL_ALGO="AllToAll:Ring")),
        rule_types.build_example("a later entry without function", settings.build_env(NCCL_ALGO="AllReduce:Tree;Ring")),
    ),
    check=_check,
)
