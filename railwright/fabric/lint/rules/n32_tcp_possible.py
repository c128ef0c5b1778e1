"""N32: NCCL may silently fall back to TCP although the policy forbids it."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_NAME = "NCCL_NET"
_STRICT = rule_types.FabricContext(
    transport=policies.Transport.ROCE,
    fabric=policies.Fabric(transport=policies.Transport.ROCE, nccl=policies.Nccl(forbid_tcp_fallback=True)),
)
_SHARED = {"rdma/hca_shared_devices": 1}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    fabric = ctx.fabric_context.fabric
    strict = fabric is not None and fabric.nccl.forbid_tcp_fallback
    if strict and effective_values.is_rdma_requested(ctx) and effective_values.is_unset(ctx, _NAME):
        yield rule_types.Violation(
            f"{_NAME} is not set, so NCCL may continue over TCP, which the policy forbids (forbidTcpFallback); set "
            f"{_NAME}={effective_values.choose_network(ctx)}",
            _NAME,
        )


RULE = rule_types.Rule(
    code="N32",
    name="tcp-fallback-possible",
    severity=rule_types.Severity.WARNING,
    title="NCCL may silently fall back to TCP although the policy forbids it",
    explanation=(
        "If no RDMA device works, NCCL continues over TCP and reports it only in its log. Only NCCL_NET makes "
        "that a failure. railwright sets it if the policy has forbidTcpFallback; it is missing if a pod skips "
        "railwright's environment."
    ),
    source="NVIDIA/nccl src/plugin/net.cc",
    good=(
        rule_types.build_example("named", settings.build_env(NCCL_NET="IB"), _STRICT, devices=_SHARED),
        rule_types.build_example("not forbidden", devices=_SHARED),
        rule_types.build_example("no RDMA requested", fabric_context=_STRICT),
    ),
    bad=(rule_types.build_example("unset", fabric_context=_STRICT, devices=_SHARED),),
    check=_check,
)
