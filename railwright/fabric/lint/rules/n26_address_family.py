"""N26: NCCL looks for IPv4 addresses, but the rails have only IPv6."""

from collections.abc import Iterator

from railwright.fabric.lint import addresses, effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_INDEX = "NCCL_IB_GID_INDEX"
_RAILS = rule_types.FabricContext(transport=policies.Transport.ROCE, rail_subnets=("fd02:1::/64", "fd02:2::/64"))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    rails = addresses.list_rail_subnets(ctx)
    if (
        not rails
        or any(rail.version != 6 for rail in rails)
        or ctx.fabric_context.transport not in {None, *effective_values.WITH_GIDS}
    ):
        return
    setting, index = ctx.get_setting(addresses.FAMILY), ctx.get_setting(_INDEX)
    number = effective_values.read_number(ctx, _INDEX)
    fixed = index is not None and (index.value is None or (number is not None and number >= 0))
    if addresses.find_family(ctx) != 4 or fixed or effective_values.is_older(ctx, *addresses.SINCE):
        return
    problem = f"the rails have IPv6 addresses only, so NCCL finds no GID; set {addresses.FAMILY}=AF_INET6"
    if setting is None:
        yield rule_types.Violation(f"{addresses.FAMILY} is not set: {problem}", addresses.FAMILY)
    else:
        yield settings.build_violation(setting, problem)


RULE = rule_types.Rule(
    code="N26",
    name="address-family-of-rails",
    severity=rule_types.Severity.WARNING,
    title="IPv6-only rails without NCCL_IB_ADDR_FAMILY=AF_INET6",
    explanation=(
        "NCCL looks for IPv4 GIDs by default, and treats an unknown word as AF_INET. On rails that have only IPv6 "
        "addresses it finds none and uses entry 0, which is link-local."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc, simulated on recorded GID tables",
    good=(
        rule_types.build_example("IPv6 set", settings.build_env(NCCL_IB_ADDR_FAMILY="AF_INET6"), _RAILS),
        rule_types.build_example(
            "both families on the rails",
            fabric_context=rule_types.FabricContext(rail_subnets=("fd02:1::/64", "192.168.1.0/24")),
        ),
        rule_types.build_example(
            "subnets not known", fabric_context=rule_types.FabricContext(transport=policies.Transport.ROCE)
        ),
        rule_types.build_example("a fixed index", settings.build_env(NCCL_IB_GID_INDEX="3"), _RAILS),
    ),
    bad=(
        rule_types.build_example("unset", fabric_context=_RAILS),
        rule_types.build_example("IPv4", settings.build_env(NCCL_IB_ADDR_FAMILY="AF_INET"), _RAILS),
    ),
    check=_check,
)
