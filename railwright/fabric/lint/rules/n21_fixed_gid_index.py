"""N21: a fixed GID index where NCCL can choose."""

from collections.abc import Iterator

from railwright.fabric.lint import hardware, rule_types, settings
from railwright.fabric.nccl import integers
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_GID_INDEX"
_AUTOMATIC = (2, 21)  # the default became -1 (NVIDIA/nccl v2.21.5-1)
_WITHOUT_GIDS = frozenset({policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.TCP})  # N27's
_ROCE = rule_types.FabricContext(transport=policies.Transport.ROCE)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value or ctx.fabric_context.transport in _WITHOUT_GIDS:
        return
    index = integers.parse(setting.value, ctx.nccl)
    old = ctx.nccl is not None and ctx.nccl < _AUTOMATIC
    if (
        old
        or isinstance(index, integers.NoValue)
        or index < 0
        or _is_set_by_policy(ctx, index)
        or _has_fixed_table(ctx)
    ):
        return
    yield settings.build_violation(
        setting, "the right index differs from pod to pod; remove it: NCCL chooses it itself since 2.21"
    )


def _has_fixed_table(ctx: rule_types.RankContext) -> bool:
    """True if no other pod adds GIDs to the devices: those of the host's network, or of the pod alone."""
    requested = hardware.find_rdma_devices(ctx)
    return ctx.host_network or (bool(requested) and all(map(hardware.is_exclusive, requested)))


def _is_set_by_policy(ctx: rule_types.RankContext, index: int) -> bool:
    fabric = ctx.fabric_context.fabric
    return fabric is not None and fabric.nccl.gid_index == index


RULE = rule_types.Rule(
    code="N21",
    name="fixed-gid-index",
    severity=rule_types.Severity.WARNING,
    title="A fixed GID index on RoCE",
    explanation=(
        "The right index depends on the pod, because it follows the order in which addresses appeared, but NCCL "
        "uses one value for every HCA, unchecked. Since 2.21 NCCL chooses the entry itself, and its guide advises "
        "against setting this. An unknown release of NCCL counts as a newer one. Not reported: the "
        "value of gidIndex in the policy, a pod on the host's network, and devices that a pod has alone (virtual "
        "functions, host devices), whose table is the same in every pod."
    ),
    source="NVIDIA/nccl networking troubleshooting guide; multus-cni issue 1100",
    good=(
        rule_types.build_example("unset", settings.build_env(NCCL_IB_GID_INDEX="-1"), _ROCE),
        rule_types.build_example(
            "a release before 2.21", settings.build_env(NCCL_IB_GID_INDEX="3"), _ROCE, nccl=(2, 19, 3)
        ),
        rule_types.build_example(
            "a GID table that is not used",
            settings.build_env(NCCL_IB_GID_INDEX="3"),
            rule_types.FabricContext(transport=policies.Transport.INFINIBAND),
        ),
    ),
    bad=(
        rule_types.build_example("fixed", settings.build_env(NCCL_IB_GID_INDEX="3"), _ROCE, nccl=(2, 21, 5)),
        rule_types.build_example("release not known", settings.build_env(NCCL_IB_GID_INDEX="5"), _ROCE),
    ),
    check=_check,
)
