"""N10: a word that is not one of the variable's, or is in the wrong letter case."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import catalogue

# These have rules of their own, which say more: N11, N12, N24, N33, N41, N42.
_ELSEWHERE = frozenset(
    {
        "NCCL_ALGO",
        "NCCL_DEBUG",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_IB_ADDR_RANGE",
        "NCCL_IB_HCA",
        "NCCL_NET",
        "NCCL_NET_FORCE_MERGE",
        "NCCL_OOB_NET_IFNAME",
        "NCCL_PROTO",
        "NCCL_SOCKET_IFNAME",
    }
)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value, row in settings.list_rows_with_values(ctx):
        text = settings.strip_quotes(value)
        if row.is_numeric or row.name in _ELSEWHERE or not text or row.allows(text) or row.allows(value):
            continue
        yield settings.build_violation(
            setting, f"NCCL does not know this word{_format_effect(row)}; {_suggest_fix(text, row)}"
        )


def _format_effect(row: catalogue.Variable) -> str:
    return f" ({row.on_invalid})" if row.on_invalid else ""


def _suggest_fix(text: str, row: catalogue.Variable) -> str:
    if isinstance(row.allowed, catalogue.Enumeration):
        upper = text.upper()
        return f"write {upper}" if row.allowed.allows(upper) else f"it takes one of: {row.words}"
    return f"it must match {row.words}"


RULE = rule_types.Rule(
    code="N10",
    name="unknown-word",
    severity=rule_types.Severity.ERROR,
    title="The word is not one the variable takes",
    explanation=(
        "NCCL ignores an unknown word without a message; only the usual log line is missing. Distances "
        "(NCCL_NET_GDR_LEVEL, NCCL_P2P_LEVEL), address families and NCCL_NET_MERGE_LEVEL are case sensitive. An "
        "unknown NCCL_NET_MERGE_LEVEL means LOC."
    ),
    source="NVIDIA/nccl src/graph/paths.cc, src/graph/topo.cc, src/misc/socket.cc",
    good=(
        rule_types.build_example("the word in its case", settings.build_env(NCCL_NET_GDR_LEVEL="SYS")),
        rule_types.build_example("a distance as a digit", settings.build_env(NCCL_P2P_LEVEL="5")),
        rule_types.build_example("a word in any case", settings.build_env(NCCL_NET_MERGE_POLICY="rail")),
    ),
    bad=(
        rule_types.build_example("the wrong case", settings.build_env(NCCL_NET_GDR_LEVEL="sys")),
        rule_types.build_example("an unknown family", settings.build_env(NCCL_IB_ADDR_FAMILY="ipv6")),
        rule_types.build_example("the wrong grammar", settings.build_env(NCCL_NETDEVS_POLICY="MAX")),
    ),
    check=_check,
)
