"""N24: an address range that is none, or of the other family."""

from collections.abc import Iterator

from railwright.fabric.lint import addresses, effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_WITHOUT = frozenset({policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.TCP})  # N27's


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(addresses.RANGE)
    text = settings.strip_quotes(setting.value or "") if setting else ""
    if setting is None or not text or ctx.fabric_context.transport in _WITHOUT or effective_values.is_on_efa(ctx):
        return
    network, family = addresses.parse_range(text), addresses.find_family(ctx)
    if network is None:
        yield settings.build_violation(
            setting, "is not an address prefix, so NCCL ignores it; write one, such as 192.168.0.0/16 or fd00::/8"
        )
    elif family is not None and network.version != family:
        yield settings.build_violation(
            setting,
            f"is not of the family NCCL looks for, {addresses.format_family(family)}, so no GID matches and every HCA "
            f"falls to entry 0; set {addresses.FAMILY}={addresses.format_family(network.version)}",
        )


RULE = rule_types.Rule(
    code="N24",
    name="address-range-unusable",
    severity=rule_types.Severity.ERROR,
    title="NCCL_IB_ADDR_RANGE is not a prefix, or has the wrong address family",
    explanation=(
        "The range is one prefix in CIDR form, and NCCL picks GIDs of NCCL_IB_ADDR_FAMILY (default AF_INET) "
        "inside it. NCCL ignores other text, with only an INFO line. A prefix of the wrong family matches no GID, "
        "and every HCA uses entry 0, which is link-local."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc",
    good=(
        rule_types.build_example("IPv4, the default", settings.build_env(NCCL_IB_ADDR_RANGE="192.168.0.0/16")),
        rule_types.build_example(
            "IPv6 with the family", settings.build_env(NCCL_IB_ADDR_FAMILY="AF_INET6", NCCL_IB_ADDR_RANGE="fd02::/16")
        ),
        rule_types.build_example(
            "unknown family", settings.build_env(NCCL_IB_ADDR_FAMILY=None, NCCL_IB_ADDR_RANGE="fd02::/16")
        ),
    ),
    bad=(
        rule_types.build_example("an address", settings.build_env(NCCL_IB_ADDR_RANGE="192.168.0.0")),
        rule_types.build_example("a netmask", settings.build_env(NCCL_IB_ADDR_RANGE="192.168.0.0/255.255.0.0")),
        rule_types.build_example("IPv6 without the family", settings.build_env(NCCL_IB_ADDR_RANGE="fd02::/16")),
    ),
    check=_check,
)
