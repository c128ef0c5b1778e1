"""N09: a number outside the variable's range."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue, integers


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value, row in settings.list_rows_with_values(ctx):
        text = settings.strip_quotes(value)
        if row.is_numeric and integers.is_plain(text) and not row.allows(text):
            yield settings.build_violation(setting, f"is out of range; {_suggest_fix(row)}")


def _suggest_fix(row: catalogue.Variable) -> str:
    if isinstance(row.allowed, catalogue.Enumeration):
        return f"it takes one of: {row.words}"
    return f"it takes {row.words}" if row.words else "it takes numbers of 64 bits"


RULE = rule_types.Rule(
    code="N09",
    name="out-of-range",
    severity=rule_types.Severity.ERROR,
    title="The number is outside the variable's range",
    explanation=(
        "NCCL checks few numbers: timeouts, retry counts, queue pair counts and service levels go to the driver "
        "or to fixed arrays unchanged. NCCL_IB_RETRY_CNT is a field of 3 bits, so 15, which some manifests use, "
        "has the effect of 7. NCCL_IB_TIMEOUT=0 or 32 waits forever."
    ),
    source="NVIDIA/nccl user guide and src/transport/net_ib/connect.cc; NVIDIA/nccl issue 1814",
    good=(
        rule_types.build_example(
            "both ends of the range", settings.build_env(NCCL_IB_RETRY_CNT="7", NCCL_IB_TIMEOUT="1")
        ),
        rule_types.build_example("the default value", settings.build_env(NCCL_BUFFSIZE="-2")),
    ),
    bad=(
        rule_types.build_example("more retries than 3 bits hold", settings.build_env(NCCL_IB_RETRY_CNT="15")),
        rule_types.build_example("a third value for a switch", settings.build_env(NCCL_IB_SPLIT_DATA_ON_QPS="4")),
        rule_types.build_example("an endless timeout", settings.build_env(NCCL_IB_TIMEOUT="32")),
    ),
    check=_check,
)
