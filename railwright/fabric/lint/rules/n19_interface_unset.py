"""N19: NCCL_SOCKET_IFNAME is unset in a pod with rails."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_NAME = "NCCL_SOCKET_IFNAME"
_POD = model.FabricContext(interfaces=("eth0", "net1"), rail_interfaces=("net1",))


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    if ctx.fabric_context.rail_interfaces and ctx.setting(_NAME) is None:
        yield model.Violation(
            f"{_NAME} is not set, and the pod has {', '.join(ctx.fabric_context.rail_interfaces)}: NCCL may choose a "
            f"rail for bootstrap; set it to ={ctx.fabric_context.primary}",
            _NAME,
        )


RULE = model.Rule(
    code="N19",
    name="interface-unset",
    severity=model.Severity.WARNING,
    title="NCCL_SOCKET_IFNAME is unset in a pod with secondary networks",
    explanation=(
        "If the variable is unset, NCCL prefers interfaces whose names begin with ib, then all but docker, lo and "
        "virbr. So every secondary network of the pod may be used for bootstrap, and for data by the TCP "
        "transport."
    ),
    source="NVIDIA/nccl src/misc/socket.cc",
    good=(
        model.example("set", settings.env(NCCL_SOCKET_IFNAME="=eth0"), _POD),
        model.example("no secondary networks", fabric_context=model.FabricContext(interfaces=("eth0",))),
    ),
    bad=(model.example("unset", settings.env(NCCL_DEBUG="WARN"), _POD),),
    check=_check,
)
