"""N34: NCCL_ALGO or NCCL_PROTO is set."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_NAMES = frozenset({"NCCL_ALGO", "NCCL_PROTO"})


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    effect = (
        "turns off the tuner of the EFA plugin"
        if effective_values.is_on_efa(ctx)
        else "keeps NCCL from choosing by itself"
    )
    for setting in settings.list_effective(ctx):
        if setting.name in _NAMES and setting.value != "":  # an empty value is N11's
            yield settings.build_violation(
                setting, f"{effect}, for every size and function; remove it outside of benchmarks"
            )


RULE = rule_types.Rule(
    code="N34",
    name="choice-blocks-tuning",
    severity=rule_types.Severity.WARNING,
    title="NCCL_ALGO or NCCL_PROTO overrides NCCL's own choice",
    explanation=(
        "NCCL chooses algorithm and protocol for each function and size by the hardware. A fixed choice becomes "
        "outdated, LL128 can corrupt data on machines that do not support it, and on EFA either variable turns "
        "off the vendor's tuner."
    ),
    source="NVIDIA/nccl user guide, NCCL_ALGO and NCCL_PROTO; aws-ofi-nccl doc/efa-env-var.md",
    good=(rule_types.build_example("unset", settings.build_env(NCCL_DEBUG="WARN")),),
    bad=(
        rule_types.build_example("an algorithm", settings.build_env(NCCL_ALGO="Ring")),
        rule_types.build_example(
            "a protocol on EFA",
            settings.build_env(NCCL_PROTO="Simple"),
            rule_types.FabricContext(transport=policies.Transport.EFA),
        ),
        rule_types.build_example("from elsewhere", settings.build_env(NCCL_ALGO=None)),
    ),
    check=_check,
)
