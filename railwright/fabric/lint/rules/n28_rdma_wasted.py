"""N28: RDMA devices are requested, but the settings forbid NCCL to use them."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, hardware, rule_types, settings
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_DISABLE"
_BUILT_IN = frozenset({"ib", "socket"})
_SHARED = {"rdma/hca_shared_devices": 1}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if (
        setting is None
        or not effective_values.is_on(ctx, _NAME)
        or not effective_values.is_rdma_requested(ctx)
        or _is_plugin_in_use(ctx)
    ):
        return
    resources = ", ".join(sorted(hardware.find_rdma_devices(ctx)))
    yield settings.build_violation(
        setting, f"turns RDMA off, and the container requests {resources}; remove the variable, or the request"
    )


def _is_plugin_in_use(ctx: rule_types.RankContext) -> bool:
    """True if a plugin carries the data, because it ignores the variable."""
    named = ctx.get_value("NCCL_NET")
    return effective_values.is_on_efa(ctx) or (named is not None and named.casefold() not in _BUILT_IN)


RULE = rule_types.Rule(
    code="N28",
    name="rdma-requested-and-disabled",
    severity=rule_types.Severity.ERROR,
    title="RDMA devices are requested but disabled",
    explanation=(
        "NCCL_IB_DISABLE turns off NCCL's own RDMA transport: the job holds RDMA devices that others wait for, "
        "and uses TCP. Not reported on EFA or if NCCL_NET names a plugin, because the variable is not read then, "
        "nor on a fabric that the policy restricts to TCP."
    ),
    source="NVIDIA/nccl user guide, NCCL_IB_DISABLE",
    good=(
        rule_types.build_example("disabled, none requested", settings.build_env(NCCL_IB_DISABLE="1")),
        rule_types.build_example("requested and enabled", settings.build_env(NCCL_IB_DISABLE="0"), devices=_SHARED),
        rule_types.build_example(
            "a comparison over TCP",
            settings.build_env(NCCL_IB_DISABLE="1"),
            rule_types.FabricContext(transport=policies.Transport.TCP),
            devices=_SHARED,
        ),
    ),
    bad=(
        rule_types.build_example("requested and disabled", settings.build_env(NCCL_IB_DISABLE="1"), devices=_SHARED),
        rule_types.build_example(
            "SR-IOV functions", settings.build_env(NCCL_IB_DISABLE="1"), devices={"nvidia.com/sriov-rdma-vf": 8}
        ),
    ),
    check=_check,
)
