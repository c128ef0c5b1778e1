"""N36: more socket threads or connections than NCCL supports."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_THREADS = "NCCL_SOCKET_NTHREADS"
_SOCKETS = "NCCL_NSOCKS_PERTHREAD"
_MOST_THREADS = 16  # net_socket.cc, MAX_THREADS
_MOST_SOCKETS = 64  # of all threads (net_socket.cc, MAX_SOCKETS)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    threads = effective_values.read_number(ctx, _THREADS) or 0
    for setting, thread_count in effective_values.list_numbers(ctx, _THREADS):
        if thread_count > _MOST_THREADS:
            yield settings.build_violation(
                setting, f"NCCL supports at most {_MOST_THREADS} threads; set it to {_MOST_THREADS} or less"
            )
    for setting, sockets in effective_values.list_numbers(ctx, _SOCKETS):
        least = max(1, threads)  # if unset, NCCL decides by platform, but uses at least one
        if sockets * least > _MOST_SOCKETS:
            yield settings.build_violation(
                setting,
                f"times {_THREADS} ({least}) makes {sockets * least} connections, but NCCL supports at most "
                f"{_MOST_SOCKETS}; set it to {max(1, _MOST_SOCKETS // least)} or less",
            )


RULE = rule_types.Rule(
    code="N36",
    name="too-many-sockets",
    severity=rule_types.Severity.ERROR,
    title="More socket threads or connections than NCCL supports",
    explanation=(
        "NCCL_SOCKET_NTHREADS is limited to 16, and its product with NCCL_NSOCKS_PERTHREAD to 64. NCCL reduces "
        "higher values with a warning. If only one of the two is set, the other counts as 1, its minimum."
    ),
    source="NVIDIA/nccl user guide, NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD",
    good=(
        rule_types.build_example(
            "exactly 64", settings.build_env(NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="4")
        ),
        rule_types.build_example("one of them", settings.build_env(NCCL_NSOCKS_PERTHREAD="8")),
    ),
    bad=(
        rule_types.build_example("too many threads", settings.build_env(NCCL_SOCKET_NTHREADS="17")),
        rule_types.build_example(
            "too many together", settings.build_env(NCCL_SOCKET_NTHREADS="8", NCCL_NSOCKS_PERTHREAD="16")
        ),
    ),
    check=_check,
)
