"""N37: NCCL_CROSS_NIC contradicts the policy's `railOnly`."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_NAME = "NCCL_CROSS_NIC"
_SAME_NIC = 0


def _build_context(*, rail_only: bool) -> rule_types.FabricContext:
    rails = (policies.Rail(name="rail0"), policies.Rail(name="rail1"))
    fabric = policies.Fabric(transport=policies.Transport.ROCE, rails=rails, nccl=policies.Nccl(rail_only=rail_only))
    return rule_types.FabricContext(transport=fabric.transport, fabric=fabric)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    fabric = ctx.fabric_context.fabric
    if fabric is None or len(fabric.rails) < 2 or effective_values.is_policy_value(ctx, _NAME):
        return
    for setting, number in effective_values.list_numbers(ctx, _NAME):
        if fabric.nccl.rail_only and number != _SAME_NIC:
            yield settings.build_violation(
                setting,
                "lets NCCL cross rails, and the policy says that they do not reach each other (railOnly); "
                "write 0 or remove it",
            )
        elif not fabric.nccl.rail_only and number == _SAME_NIC:
            yield settings.build_violation(
                setting,
                "keeps NCCL from crossing rails, and in the policy they reach each other, so it may cost "
                "bandwidth; remove it, or have the policy say railOnly",
            )


RULE = rule_types.Rule(
    code="N37",
    name="cross-nic-against-policy",
    severity=rule_types.Severity.WARNING,
    title="NCCL_CROSS_NIC differs from the fabric's policy",
    explanation=(
        "NCCL cannot see whether rails can reach each other; railOnly in the policy states it. If they cannot, 1 "
        "and 2 let a ring leave a node on another rail than it arrived on, and connections time out. If they can, "
        "0 limits the bandwidth."
    ),
    source="NVIDIA/nccl src/graph/search.cc; user guide, NCCL_CROSS_NIC",
    good=(
        rule_types.build_example(
            "rail-only, as the policy says", settings.build_env(NCCL_CROSS_NIC="0"), _build_context(rail_only=True)
        ),
        rule_types.build_example(
            "NCCL's default on a connected fabric",
            settings.build_env(NCCL_CROSS_NIC="2"),
            _build_context(rail_only=False),
        ),
        rule_types.build_example("no policy", settings.build_env(NCCL_CROSS_NIC="0")),
    ),
    bad=(
        rule_types.build_example(
            "rails without connection", settings.build_env(NCCL_CROSS_NIC="1"), _build_context(rail_only=True)
        ),
        rule_types.build_example(
            "connected rails", settings.build_env(NCCL_CROSS_NIC="0"), _build_context(rail_only=False)
        ),
    ),
    check=_check,
)
