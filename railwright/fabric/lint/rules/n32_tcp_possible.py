"""N32: nothing forbids the silent fall to TCP, and the policy wants it forbidden."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, model, settings
from railwright.fabric.policy import model as policies

_NAME = "NCCL_NET"
_STRICT = model.FabricContext(
    transport=policies.Transport.ROCE,
    fabric=policies.Fabric(transport=policies.Transport.ROCE, nccl=policies.Nccl(forbid_tcp_fallback=True)),
)
_SHARED = {"rdma/hca_shared_devices": 1}


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    fabric = ctx.fabric_context.fabric
    strict = fabric is not None and fabric.nccl.forbid_tcp_fallback
    if strict and effective_values.rdma_requested(ctx) and effective_values.is_unset(ctx, _NAME):
        yield model.Violation(
            f"{_NAME} is not set, so that NCCL may go on over TCP, which the policy forbids (forbidTcpFallback); set "
            f"{_NAME}={effective_values.network(ctx)}",
            _NAME,
        )


RULE = model.Rule(
    code="N32",
    name="tcp-fallback-possible",
    severity=model.Severity.WARNING,
    title="A silent fall to TCP is possible where the policy forbids it",
    explanation=(
        "When no RDMA device works, NCCL goes on over TCP and says so only in its log. NCCL_NET is the one built-in "
        "way to make that a failure. railwright sets it where the policy says forbidTcpFallback; it is missing where "
        "a pod leaves out railwright's environment."
    ),
    source="NVIDIA/nccl src/plugin/net.cc",
    good=(
        model.example("named", settings.env(NCCL_NET="IB"), _STRICT, devices=_SHARED),
        model.example("not forbidden", devices=_SHARED),
        model.example("no RDMA requested", fabric_context=_STRICT),
    ),
    bad=(model.example("unset", fabric_context=_STRICT, devices=_SHARED),),
    check=_check,
)
