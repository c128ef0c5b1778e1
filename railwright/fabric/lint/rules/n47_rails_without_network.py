"""N47: RoCE devices without a network interface in the pod."""

from collections.abc import Iterator

from railwright.fabric import text
from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_HCA"
_SHARED = rule_types.FabricContext(transport=policies.Transport.ROCE, exclusive=False)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value or not ctx.networks or not _needs_interfaces(ctx.fabric_context):
        return
    devices = _list_exact_devices(settings.strip_quotes(setting.value))
    expected = len(devices) - _count_rails_without_network(ctx.fabric_context.fabric)
    if ctx.networks < expected:
        yield settings.build_violation(
            setting,
            f"names {text.format_count(len(devices), 'device')}, and the pod selects "
            f"{text.format_count(ctx.networks, 'secondary network')}: a RoCE device "
            "without an interface in the pod has no GID there; select one network for each, or name fewer devices",
        )


def _needs_interfaces(fabric_context: rule_types.FabricContext) -> bool:
    """True if a device needs an interface in the pod: RoCE, unless SR-IOV brings both together."""
    return fabric_context.transport is policies.Transport.ROCE and not fabric_context.exclusive


def _list_exact_devices(value: str) -> frozenset[lists.Entry]:
    """Return the entries of an exact list, and none for a list of prefixes or exclusions."""
    name_list = lists.parse(value)
    return frozenset(name_list.entries) if name_list.exact and not name_list.exclude else frozenset()


def _count_rails_without_network(fabric: policies.Fabric | None) -> int:
    """Return the number of rails for which the policy names no network."""
    return sum(rail.network is None for rail in fabric.rails) if fabric else 0


RULE = rule_types.Rule(
    code="N47",
    name="rail-without-network",
    severity=rule_types.Severity.WARNING,
    title="More RoCE devices than secondary networks",
    explanation=(
        "A RoCE device takes its GIDs from the interfaces in the pod's network namespace. With macvlan and shared "
        "devices every device of the node is visible, but only those with a secondary network in the pod have a "
        "usable address. More networks than devices are not reported: one may be for storage."
    ),
    source="NVIDIA/nccl issue 1796; akash-network/provider issue 424",
    good=(
        rule_types.build_example(
            "one network each", settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"), _SHARED, networks=2
        ),
        rule_types.build_example("a prefix", settings.build_env(NCCL_IB_HCA="mlx5"), _SHARED, networks=2),
        rule_types.build_example(
            "the host's network", settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"), _SHARED, networks=0
        ),
        rule_types.build_example(
            "InfiniBand needs none",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
            rule_types.FabricContext(transport=policies.Transport.INFINIBAND, exclusive=False),
            networks=1,
        ),
    ),
    bad=(
        rule_types.build_example(
            "four devices, three networks",
            settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
            _SHARED,
            networks=3,
        ),
    ),
    check=_check,
)
