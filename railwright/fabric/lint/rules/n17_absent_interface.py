"""N17: NCCL_SOCKET_IFNAME selects no interface of the pod."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_SOCKET_IFNAME"
_LOOPBACK = "lo"  # every network namespace has it
_POD = model.FabricContext(interfaces=("eth0", "net1"), rail_interfaces=("net1",))


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    setting, there = ctx.setting(_NAME), ctx.fabric_context.interfaces
    if setting is None or not setting.value or there is None:
        return
    if not lists.select_interfaces(settings.bare(setting.value), (*there, _LOOPBACK)):
        yield settings.violation(
            setting,
            f"selects no interface of the pod, which has {', '.join(there)}: NCCL fails to start; "
            f"write ={ctx.fabric_context.primary}",
        )


RULE = model.Rule(
    code="N17",
    name="absent-interface",
    severity=model.Severity.ERROR,
    title="NCCL_SOCKET_IFNAME selects no interface the pod has",
    explanation=(
        "If the variable is set and matches nothing, NCCL fails at start with 'Bootstrap : no socket interface "
        "found'. A pod has eth0 and the interfaces of its secondary networks, not those of its node, unless it "
        "uses the host's network."
    ),
    source="NVIDIA/nccl src/misc/socket.cc, observed on 2.30.7",
    good=(
        model.example("the pod's interface", settings.env(NCCL_SOCKET_IFNAME="=eth0"), _POD),
        model.example("the host's network", settings.env(NCCL_SOCKET_IFNAME="ens3")),
    ),
    bad=(model.example("a node's interface", settings.env(NCCL_SOCKET_IFNAME="=ens3,bond0"), _POD),),
    check=_check,
)
