"""N23: more queue pairs than NCCL's array holds."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_NAME = "NCCL_IB_QPS_PER_CONNECTION"
_GROUPS = "NCCL_NET_FORCE_MERGE"
_MOST = 128  # queue pairs of one connection (connect.cc, NCCL_IB_MAX_QPS)
_MOST_FUSED = 4  # devices of one fused NIC (nccl_net.h, NCCL_NET_MAX_DEVS_PER_NIC)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    fused = _count_fused(ctx.get_value(_GROUPS) or "")
    for setting, pairs in effective_values.list_numbers(ctx, _NAME):
        if pairs * fused > _MOST:
            group = f" times {fused} devices that {_GROUPS} fuses" if fused > 1 else ""
            yield settings.build_violation(
                setting,
                f"{pairs} queue pairs{group} overrun NCCL's array of {_MOST}, and nothing checks it; write "
                f"{_MOST // fused} or less, 2 to 8 do",
            )


def _count_fused(groups: str) -> int:
    sizes = [len([name for name in group.split(",") if name]) for group in groups.split(";")]
    return max(1, min(_MOST_FUSED, max(sizes)))


RULE = rule_types.Rule(
    code="N23",
    name="too-many-queue-pairs",
    severity=rule_types.Severity.ERROR,
    title="More queue pairs than a connection can hold",
    explanation=(
        "Each connection opens NCCL_IB_QPS_PER_CONNECTION queue pairs on every device of a fused NIC. Their "
        "product must not exceed 128: NCCL stores them in an array of that size without a check, so more would "
        "overwrite other memory. Only devices in NCCL_NET_FORCE_MERGE are counted; lint cannot see what NCCL "
        "fuses itself."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc",
    good=(
        rule_types.build_example("few queue pairs", settings.build_env(NCCL_IB_QPS_PER_CONNECTION="8")),
        rule_types.build_example(
            "exactly 128",
            settings.build_env(NCCL_IB_QPS_PER_CONNECTION="64", NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_1;mlx5_2"),
        ),
    ),
    bad=(
        rule_types.build_example("more than the array", settings.build_env(NCCL_IB_QPS_PER_CONNECTION="129")),
        rule_types.build_example(
            "more than the array on two fused devices",
            settings.build_env(NCCL_IB_QPS_PER_CONNECTION="65", NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_1"),
        ),
    ),
    check=_check,
)
