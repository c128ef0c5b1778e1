"""N57: several virtual functions of a card that NCCL treats as one NIC."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, hardware, rule_types, settings
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_MERGE_VFS"
# Setting any of these decides which functions NCCL merges.
_MERGE_VARIABLES = (_NAME, "NCCL_IB_MERGE_NICS", "NCCL_NET_MERGE_LEVEL", "NCCL_NET_FORCE_MERGE")
_CHECKED_TRANSPORTS = frozenset({None, policies.Transport.ROCE, policies.Transport.INFINIBAND})
_EXCLUSIVE = rule_types.FabricContext(transport=policies.Transport.ROCE, exclusive=True)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if (
        ctx.fabric_context.transport not in _CHECKED_TRANSPORTS
        or effective_values.is_on_efa(ctx)
        or not _merges_functions(ctx)
    ):
        return
    if not all(effective_values.is_unset(ctx, name) for name in _MERGE_VARIABLES):
        return
    for resource, amount in sorted(hardware.find_rdma_devices(ctx).items()):
        virtual = ctx.fabric_context.exclusive or hardware.is_virtual(resource)
        if (
            virtual
            and not _is_one_of_each_port(ctx, amount)
            and amount > max(1, _count_requested_by_policy(resource, ctx.fabric_context.fabric))
        ):
            yield rule_types.Violation(
                f"{_NAME} is not set and the container requests {amount} of {resource}: NCCL treats functions of "
                f"one card as one NIC; set {_NAME}=0 and measure the bandwidth",
                _NAME,
            )


def _is_one_of_each_port(ctx: rule_types.RankContext, amount: int) -> bool:
    """True for as many functions, or twice as many, as GPUs: a whole node, with a function of each port of its NICs."""
    return ctx.accelerators > 1 and amount in {ctx.accelerators, 2 * ctx.accelerators}


def _merges_functions(ctx: rule_types.RankContext) -> bool:
    row = catalogue.find(_NAME)
    since = row.since if row else None
    return since is None or ctx.nccl is None or ctx.nccl >= since


def _count_requested_by_policy(resource: str, fabric: policies.Fabric | None) -> int:
    """Return the number of devices of `resource` that the policy requests for a pod."""
    rails = [rail for rail in fabric.rails if rail.resource in {resource, None}] if fabric else []
    return len(rails) * fabric.devices_per_rail if fabric else 0


RULE = rule_types.Rule(
    code="N57",
    name="fused-virtual-functions",
    severity=rule_types.Severity.WARNING,
    title="Several virtual functions of a card, which NCCL merges",
    explanation=(
        "NCCL treats functions of one PCI device as ports of one NIC and merges them by default. Several "
        "functions of one pool in a pod may be of one card; then the bandwidth of a port is counted twice. "
        "Functions that the policy requests are not reported, because its author knows them, nor one or two for each "
        "GPU, as pods with a whole node request them. This is concluded "
        "from the source, not measured."
    ),
    source="NVIDIA/nccl src/transport/net_ib/init.cc and src/graph/topo.cc",
    good=(
        rule_types.build_example("one function", fabric_context=_EXCLUSIVE, devices={"example.com/sriov_vf": 1}),
        rule_types.build_example(
            "merging turned off",
            settings.build_env(NCCL_IB_MERGE_VFS="0"),
            _EXCLUSIVE,
            devices={"example.com/sriov_vf": 8},
        ),
        rule_types.build_example(
            "shared devices",
            fabric_context=rule_types.FabricContext(exclusive=False),
            devices={"rdma/hca_shared_devices": 8},
        ),
    ),
    bad=(
        rule_types.build_example(
            "two of one pool", fabric_context=_EXCLUSIVE, devices={"example.com/pool_a": 2, "example.com/sriov_vf": 2}
        ),
        rule_types.build_example("by the pool's name", devices={"nvidia.com/sriov-rdma-vf": 16}),
    ),
    check=_check,
)
