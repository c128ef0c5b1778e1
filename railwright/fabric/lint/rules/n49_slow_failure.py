"""N49: a timeout that reports a dead link after minutes."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_NAME = "NCCL_IB_TIMEOUT"
_MOST = 23
_UNIT = 4.096e-6  # seconds, times two to the power of the value (InfiniBand specification, local ack timeout)
_LONGEST = 31  # beyond it the wait has no end, and the number is out of range: N09's
_RETRIES = 7  # NCCL's default


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if effective_values.is_policy_value(ctx, _NAME):
        return
    retries = effective_values.read_number(ctx, "NCCL_IB_RETRY_CNT")
    for setting, exponent in effective_values.list_numbers(ctx, _NAME):
        if _MOST < exponent <= _LONGEST:
            yield settings.build_violation(
                setting,
                f"a dead link shows after {_format_delay(exponent, _RETRIES if retries is None else retries)}; "
                "20 is NCCL's default, 22 survives route changes of large fabrics",
            )


def _format_delay(exponent: int, retries: int) -> str:
    minutes = _UNIT * 2**exponent * (min(max(retries, 0), _RETRIES) + 1) / 60
    return f"about {minutes:.0f} minutes" if minutes >= 1.5 else "more than a minute"


RULE = rule_types.Rule(
    code="N49",
    name="slow-failure",
    severity=rule_types.Severity.WARNING,
    title="A dead link is detected after many minutes",
    explanation=(
        "The timeout of one attempt is 4.096 microseconds times two to the power of NCCL_IB_TIMEOUT, and a link "
        "counts as dead after 7 more attempts: 34 seconds at 20, 137 at 22, nine minutes at 24, doubling with "
        "each step. All GPUs of the job wait. The value of timeout in the policy is not reported."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc; NVIDIA/nccl issue 902",
    good=(
        rule_types.build_example("for large fabrics", settings.build_env(NCCL_IB_TIMEOUT="22")),
        rule_types.build_example("the highest value that is not reported", settings.build_env(NCCL_IB_TIMEOUT="23")),
    ),
    bad=(
        rule_types.build_example("nine minutes", settings.build_env(NCCL_IB_TIMEOUT="24")),
        rule_types.build_example("the longest", settings.build_env(NCCL_IB_TIMEOUT="31")),
    ),
    check=_check,
)
