"""N19: NCCL_SOCKET_IFNAME is unset in a pod with rails."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "NCCL_SOCKET_IFNAME"
_POD = rule_types.FabricContext(interfaces=("eth0", "net1"), rail_interfaces=("net1",))


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.fabric_context.rail_interfaces and ctx.get_setting(_NAME) is None:
        yield rule_types.Violation(
            f"{_NAME} is not set, and the pod has {', '.join(ctx.fabric_context.rail_interfaces)}: NCCL may choose a "
            f"rail for bootstrap; set it to ={ctx.fabric_context.primary}",
            _NAME,
        )


RULE = rule_types.Rule(
    code="N19",
    name="interface-unset",
    severity=rule_types.Severity.WARNING,
    title="NCCL_SOCKET_IFNAME is unset in a pod with secondary networks",
    explanation=(
        "If the variable is unset, NCCL prefers interfaces whose names begin with ib, then all but docker, lo and "
        "virbr. So every secondary network of the pod may be used for bootstrap, and for data by the TCP "
        "transport."
    ),
    source="NVIDIA/nccl src/misc/socket.cc",
    good=(
        rule_types.build_example("set", settings.build_env(NCCL_SOCKET_IFNAME="=eth0"), _POD),
        rule_types.build_example(
            "no secondary networks", fabric_context=rule_types.FabricContext(interfaces=("eth0",))
        ),
    ),
    bad=(rule_types.build_example("unset", settings.build_env(NCCL_DEBUG="WARN"), _POD),),
    check=_check,
)
