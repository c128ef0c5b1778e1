"""N17: NCCL_SOCKET_IFNAME selects no interface of the pod."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_SOCKET_IFNAME"
_LOOPBACK = "lo"  # every network namespace has it
_POD = rule_types.FabricContext(interfaces=("eth0", "net1"), rail_interfaces=("net1",))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting, interfaces = ctx.get_setting(_NAME), ctx.fabric_context.interfaces
    if setting is None or not setting.value or interfaces is None:
        return
    if not lists.select_interfaces(settings.strip_quotes(setting.value), (*interfaces, _LOOPBACK)):
        yield settings.build_violation(
            setting,
            f"selects no interface of the pod, which has {', '.join(interfaces)}: NCCL fails to start; "
            f"write ={ctx.fabric_context.primary}",
        )


RULE = rule_types.Rule(
    code="N17",
    name="absent-interface",
    severity=rule_types.Severity.ERROR,
    title="NCCL_SOCKET_IFNAME selects no interface the pod has",
    explanation=(
        "If the variable is set and matches nothing, NCCL fails at start with 'Bootstrap : no socket interface "
        "found'. A pod has eth0 and the interfaces of its secondary networks, not those of its node, unless it "
        "uses the host's network."
    ),
    source="NVIDIA/nccl src/misc/socket.cc, observed on 2.30.7",
    good=(
        rule_types.build_example("the pod's interface", settings.build_env(NCCL_SOCKET_IFNAME="=eth0"), _POD),
        rule_types.build_example("the host's network", settings.build_env(NCCL_SOCKET_IFNAME="ens3")),
    ),
    bad=(rule_types.build_example("a node's interface", settings.build_env(NCCL_SOCKET_IFNAME="=ens3,bond0"), _POD),),
    check=_check,
)
