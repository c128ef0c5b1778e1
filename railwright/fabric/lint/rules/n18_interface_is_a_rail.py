"""N18: NCCL_SOCKET_IFNAME selects a rail."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_SOCKET_IFNAME"
_POD = rule_types.FabricContext(interfaces=("eth0", "net1", "net2"), rail_interfaces=("net1", "net2"))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value:
        return
    rails = lists.select_interfaces(settings.strip_quotes(setting.value), ctx.fabric_context.rail_interfaces)
    if rails:
        yield settings.build_violation(
            setting,
            f"selects {', '.join(rails)}, a rail: bootstrap and the RDMA handshake would run on it; "
            f"write ={ctx.fabric_context.primary}",
        )


RULE = rule_types.Rule(
    code="N18",
    name="interface-is-a-rail",
    severity=rule_types.Severity.WARNING,
    title="NCCL_SOCKET_IFNAME selects a rail",
    explanation=(
        "The interface carries NCCL's bootstrap, the out-of-band handshake of RDMA and, with the TCP transport, "
        "the data. On a rail that is rail-only or lossless, this traffic may not reach the other pods, or may "
        "disturb the rail's own traffic."
    ),
    source="NVIDIA/nccl src/misc/socket.cc",
    good=(
        rule_types.build_example("the primary interface", settings.build_env(NCCL_SOCKET_IFNAME="=eth0"), _POD),
        rule_types.build_example("a prefix of it", settings.build_env(NCCL_SOCKET_IFNAME="eth"), _POD),
    ),
    bad=(
        rule_types.build_example("a rail", settings.build_env(NCCL_SOCKET_IFNAME="net1"), _POD),
        rule_types.build_example("all interfaces except loopback", settings.build_env(NCCL_SOCKET_IFNAME="^lo"), _POD),
    ),
    check=_check,
)
