"""N59: a partition key where its index is meant."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken

_NAME = "NCCL_IB_PKEY"
_LAST_INDEX = 127  # tables of the usual HCAs have 128 entries


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    for setting, number in taken.numbers(ranks, _NAME):
        if number > _LAST_INDEX:
            yield settings.complaint(
                setting,
                f"looks like the key 0x{number:x} itself, and its index in the port's table is meant; write the index "
                "(/sys/class/infiniband/NAME/ports/1/pkeys)",
            )


RULE = model.Rule(
    code="N59",
    name="partition-key",
    severity=model.Severity.WARNING,
    title="NCCL_IB_PKEY looks like a key, not an index",
    explanation=(
        "The variable is an index into the partition table of the port, which differs from port to port. A key, such "
        "as 0x8001 or 32769, is beyond the table, and the queue pair cannot be set up."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc",
    good=(
        model.Example("an index", model.Ranks("a rank", settings.env(NCCL_IB_PKEY="1"))),
        model.Example("the last entry", model.Ranks("a rank", settings.env(NCCL_IB_PKEY="127"))),
    ),
    bad=(
        model.Example("a key", model.Ranks("a rank", settings.env(NCCL_IB_PKEY="32769"))),
        model.Example("a key in hexadecimal", model.Ranks("a rank", settings.env(NCCL_IB_PKEY="0x8001"))),
    ),
    check=_check,
)
