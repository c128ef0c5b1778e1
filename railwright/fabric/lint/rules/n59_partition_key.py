"""N59: a partition key instead of its index."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_NAME = "NCCL_IB_PKEY"
_LAST_INDEX = 127  # tables of the usual HCAs have 128 entries


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, number in effective_values.list_numbers(ctx, _NAME):
        if number > _LAST_INDEX:
            yield settings.build_violation(
                setting,
                f"looks like the key 0x{number:x} itself, and its index in the port's table is meant; write the index "
                "(/sys/class/infiniband/NAME/ports/1/pkeys)",
            )


RULE = rule_types.Rule(
    code="N59",
    name="partition-key",
    severity=rule_types.Severity.WARNING,
    title="NCCL_IB_PKEY looks like a key, not an index",
    explanation=(
        "The variable is an index into the partition table of the port, which differs from port to port. A key, "
        "such as 0x8001 or 32769, is outside of the table, and the queue pair cannot be created."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc",
    good=(
        rule_types.build_example("an index", settings.build_env(NCCL_IB_PKEY="1")),
        rule_types.build_example("the last entry", settings.build_env(NCCL_IB_PKEY="127")),
    ),
    bad=(
        rule_types.build_example("a key", settings.build_env(NCCL_IB_PKEY="32769")),
        rule_types.build_example("a key in hexadecimal", settings.build_env(NCCL_IB_PKEY="0x8001")),
    ),
    check=_check,
)
