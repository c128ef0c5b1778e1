"""N27: variables that the fabric's transport never reads."""

from collections.abc import Iterator

from railwright.fabric.lint import addresses, effective_values, rule_types, settings
from railwright.fabric.policy import model as policies

_ROCE_ONLY = frozenset(
    {
        "NCCL_IB_FIFO_TC",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_ROCE_VERSION_NUM",
        "NCCL_IB_TC",
        addresses.FAMILY,
        addresses.RANGE,
    }
)
_INFINIBAND = rule_types.FabricContext(transport=policies.Transport.INFINIBAND)
_EFA = rule_types.FabricContext(transport=policies.Transport.EFA)
_AUTOMATIC = "-1"  # as if unset


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    efa, infiniband = effective_values.is_on_efa(ctx), ctx.fabric_context.transport is policies.Transport.INFINIBAND
    for setting in settings.list_effective(ctx):
        if setting.value == _AUTOMATIC:
            continue
        if efa and setting.name.startswith("NCCL_IB_"):
            yield settings.build_violation(
                setting, "has no effect on EFA, which NCCL reaches through the libfabric plugin; remove it"
            )
        elif infiniband and setting.name in _ROCE_ONLY:
            yield settings.build_violation(setting, "has no effect on native InfiniBand, only on RoCE; remove it")


RULE = rule_types.Rule(
    code="N27",
    name="no-effect-on-fabric",
    severity=rule_types.Severity.WARNING,
    title="The fabric's transport does not read this variable",
    explanation=(
        "Native InfiniBand has no RoCE addresses: GID index, traffic class, address family and range have no "
        "effect there; the service level has. On AWS EFA, NCCL uses the libfabric plugin and reads no NCCL_IB_ "
        "variable. The automatic choice -1 is not reported."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc; aws-ofi-nccl doc/efa-env-var.md",
    good=(
        rule_types.build_example("a service level", settings.build_env(NCCL_IB_SL="1"), _INFINIBAND),
        rule_types.build_example(
            "a traffic class on RoCE",
            settings.build_env(NCCL_IB_TC="96"),
            rule_types.FabricContext(transport=policies.Transport.ROCE),
        ),
        rule_types.build_example("fabric not known", settings.build_env(NCCL_IB_GID_INDEX="3")),
        rule_types.build_example("a variable of the plugin", settings.build_env(FI_PROVIDER="efa"), _EFA),
    ),
    bad=(
        rule_types.build_example("a GID index", settings.build_env(NCCL_IB_GID_INDEX="3"), _INFINIBAND),
        rule_types.build_example("a device list on EFA", settings.build_env(NCCL_IB_HCA="mlx5"), _EFA),
        rule_types.build_example(
            "EFA by its device", settings.build_env(NCCL_IB_TIMEOUT="22"), devices={"vpc.amazonaws.com/efa": 4}
        ),
    ),
    check=_check,
)
