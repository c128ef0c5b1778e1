"""N51: out-of-order receive without adaptive routing."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_OOO_RQ"
_ROUTING = "NCCL_IB_ADAPTIVE_ROUTING"
_ROCE = rule_types.FabricContext(transport=policies.Transport.ROCE)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if (
        setting is None
        or not effective_values.is_on(ctx, _NAME)
        or effective_values.is_on_efa(ctx)
        or not _is_routing_static(ctx)
    ):
        return
    yield settings.build_violation(
        setting, f"needs adaptive routing, which is off here; set {_ROUTING}=1 where the fabric does it, or remove this"
    )


def _is_routing_static(ctx: rule_types.RankContext) -> bool:
    """True if adaptive routing is known to be off, by its variable, or by its default on RoCE."""
    if effective_values.is_unset(ctx, _ROUTING):
        return ctx.fabric_context.transport in effective_values.WITH_GIDS
    return effective_values.read_number(ctx, _ROUTING) == 0


RULE = rule_types.Rule(
    code="N51",
    name="out-of-order-without-adaptive-routing",
    severity=rule_types.Severity.WARNING,
    title="NCCL_IB_OOO_RQ without adaptive routing",
    explanation=(
        "Receiving out of order handles packets that adaptive routing reorders; NCCL requires both together. "
        "NCCL_IB_ADAPTIVE_ROUTING is on by default on InfiniBand and off on RoCE."
    ),
    source="NVIDIA/nccl user guide, NCCL_IB_OOO_RQ",
    good=(
        rule_types.build_example("both", settings.build_env(NCCL_IB_OOO_RQ="1", NCCL_IB_ADAPTIVE_ROUTING="1"), _ROCE),
        rule_types.build_example(
            "the default on InfiniBand",
            settings.build_env(NCCL_IB_OOO_RQ="1"),
            rule_types.FabricContext(transport=policies.Transport.INFINIBAND),
        ),
        rule_types.build_example("fabric not known", settings.build_env(NCCL_IB_OOO_RQ="1")),
    ),
    bad=(
        rule_types.build_example("turned off", settings.build_env(NCCL_IB_OOO_RQ="1", NCCL_IB_ADAPTIVE_ROUTING="0")),
        rule_types.build_example("the default on RoCE", settings.build_env(NCCL_IB_OOO_RQ="1"), _ROCE),
    ),
    check=_check,
)
