"""N49: a timeout at which a dead link is noticed after minutes."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken

_NAME = "NCCL_IB_TIMEOUT"
_MOST = 23
_UNIT = 4.096e-6  # seconds, times two to the power of the value (InfiniBand specification, local ack timeout)
_LONGEST = 31  # beyond it the wait has no end, and the number is out of range: N09's
_RETRIES = 7  # NCCL's default


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if taken.is_policy_value(ranks, _NAME):
        return
    retries = taken.number(ranks, "NCCL_IB_RETRY_CNT")
    for setting, exponent in taken.numbers(ranks, _NAME):
        if _MOST < exponent <= _LONGEST:
            yield settings.complaint(
                setting,
                f"a dead link shows after {_format_delay(exponent, _RETRIES if retries is None else retries)}; "
                "20 is NCCL's default, 22 rides out route changes of large fabrics",
            )


def _format_delay(exponent: int, retries: int) -> str:
    minutes = _UNIT * 2**exponent * (min(max(retries, 0), _RETRIES) + 1) / 60
    return f"about {minutes:.0f} minutes" if minutes >= 1.5 else "more than a minute"


RULE = model.Rule(
    code="N49",
    name="slow-failure",
    severity=model.Severity.WARNING,
    title="A dead link is noticed after many minutes",
    explanation=(
        "The timeout of one try is 4.096 microseconds times two to the power of NCCL_IB_TIMEOUT, and a link counts as "
        "dead after 7 more tries: 34 seconds at 20, 137 at 22, nine minutes at 24 and twice as long with each step. "
        "All GPUs of the job wait. A policy that says timeout is believed."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc; NVIDIA/nccl issue 902",
    good=(
        model.Example("for large fabrics", model.Ranks("a rank", settings.env(NCCL_IB_TIMEOUT="22"))),
        model.Example("the last that is quiet", model.Ranks("a rank", settings.env(NCCL_IB_TIMEOUT="23"))),
    ),
    bad=(
        model.Example("nine minutes", model.Ranks("a rank", settings.env(NCCL_IB_TIMEOUT="24"))),
        model.Example("the longest", model.Ranks("a rank", settings.env(NCCL_IB_TIMEOUT="31"))),
    ),
    check=_check,
)
