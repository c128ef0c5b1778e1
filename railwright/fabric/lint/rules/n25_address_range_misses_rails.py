"""N25: an address range in which the rails do not lie."""

from collections.abc import Iterator

from railwright.fabric.lint import addresses, effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_RAILS = rule_types.FabricContext(
    transport=policies.Transport.ROCE, rail_subnets=("192.168.1.0/24", "192.168.2.0/24", "192.168.3.0/24")
)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(addresses.RANGE)
    if setting is None or setting.value is None or effective_values.is_policy_value(ctx, setting.name):
        return
    network = addresses.parse_range(settings.strip_quotes(setting.value))
    if network is None or ctx.fabric_context.transport not in {None, *effective_values.WITH_GIDS}:
        return
    missed = [
        str(rail)
        for rail in addresses.list_rail_subnets(ctx)
        if rail.version == network.version and not _overlaps(rail, network)
    ]
    if missed:
        yield settings.build_violation(
            setting,
            f"does not hold the rails' {', '.join(missed[:4])}, so that their HCAs fall to GID 0, which is link-local; "
            "write one prefix that holds the networks of all rails",
        )


def _overlaps(rail: addresses.Network, network: addresses.Network) -> bool:
    """True if the ranges overlap. A range inside a rail's subnet is intended: it distinguishes pods from hosts."""
    return rail.network_address in network or network.network_address in rail


RULE = rule_types.Rule(
    code="N25",
    name="address-range-misses-rails",
    severity=rule_types.Severity.ERROR,
    title="NCCL_IB_ADDR_RANGE does not contain the rails",
    explanation=(
        "There is one range for all rails. An HCA without an address in it gets GID 0, a link-local one, so a "
        "wrong range is worse than none. Rails in separate subnets need the common supernet. A range that "
        "contains a part of a rail's subnet is not reported: it may distinguish pods from hosts."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc, simulated on recorded GID tables",
    good=(
        rule_types.build_example("the supernet", settings.build_env(NCCL_IB_ADDR_RANGE="192.168.0.0/16"), _RAILS),
        rule_types.build_example("subnets not known", settings.build_env(NCCL_IB_ADDR_RANGE="10.0.0.0/8")),
        rule_types.build_example(
            "the pods' part of a rail",
            settings.build_env(NCCL_IB_ADDR_RANGE="10.1.128.0/17"),
            rule_types.FabricContext(rail_subnets=("10.1.0.0/16",)),
        ),
    ),
    bad=(
        rule_types.build_example("another network", settings.build_env(NCCL_IB_ADDR_RANGE="10.0.0.0/8"), _RAILS),
        rule_types.build_example(
            "the first rail only", settings.build_env(NCCL_IB_ADDR_RANGE="192.168.1.0/24"), _RAILS
        ),
    ),
    check=_check,
)
