"""Builds reports that rails do not work, as monitors write them, and clusters that have them."""

from collections.abc import Mapping, Sequence

import msgspec
import placing

from railwright.fabric import node_views
from railwright.fabric.placement.state import cluster_state, rail_reports
from railwright.fabric.policy import model

SINCE = "2026-08-12T23:00:02Z"
STATE, CHAR_DEVICE = "InfiniBandStateCheck", "InfiniBandCharDeviceCheck"


def port_down(nic: str) -> str:
    """Return what NVSentinel writes of a port that is down (constructHealthEventMessage; ibstate.go)."""
    text = f"Port {nic} port 1: state DOWN, phys_state Disabled"
    return f"NIC:{nic} NICPort:1 {text} Recommended Action=REPLACE_VM"


def issm_missing(nic: str) -> str:
    """Return what NVSentinel writes of a missing character device (ibdevnode.go), with its semicolon replaced."""
    text = (
        f"Device {nic} port 1: issm character device missing from /sys/class/infiniband_mad (expected for an "
        "InfiniBand-mode port). pods cannot open /dev/infiniband/issm*"
    )
    return f"ErrorCode:issm NIC:{nic} NICPort:1 {text} Recommended Action=REPLACE_VM"


def condition(kind: str, *entries: str, end: str = ";") -> dict[str, str]:
    """Return a condition of NVSentinel with these entries; without entries, one that has recovered."""
    return {
        "type": kind,
        "status": "True" if entries else "False",
        "reason": f"{kind}Is{'Not' if entries else ''}Healthy",
        "message": ";".join(entries) + end if entries else "No Health Failures",
        "lastHeartbeatTime": SINCE,
        "lastTransitionTime": SINCE,
    }


def with_conditions(node: node_views.Node, *conditions: Mapping[str, str]) -> node_views.Node:
    """Return a node with these conditions."""
    status = msgspec.structs.replace(
        node.status, conditions=msgspec.convert(conditions, list[node_views.NodeCondition])
    )
    return msgspec.structs.replace(node, status=status)


def policy(
    *, required: bool = False, devices: bool = True, health: Mapping[str, object] | None = None, **placement: object
) -> model.Policy:
    """Return the policy of `placing` with the device mlx5_N on rail N, unless `devices` is False."""
    base = placing.policy(required=required, **placement).document
    fabric = base.fabrics["roce"]
    rails = tuple(
        msgspec.structs.replace(rail, device=f"mlx5_{number}" if devices else None)
        for number, rail in enumerate(fabric.rails)
    )
    document = msgspec.structs.replace(
        base,
        fabrics={"roce": msgspec.structs.replace(fabric, rails=rails)},
        health=msgspec.convert(health or {}, model.Health),
    )
    return model.Policy(document, digest="sha256:test")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ReportedCluster:
    """A cluster whose nodes get conditions, with a policy and a clock."""

    def __init__(self, nodes: Sequence[node_views.Node], by: model.Policy) -> None:
        self.clock = Clock()
        self.nodes = {node.metadata.name: node for node in nodes}
        self.state = cluster_state.ClusterState(self.clock)
        self.state.replace_nodes(nodes)
        self.apply(by)

    def apply(self, by: model.Policy) -> None:
        """Apply a policy."""
        self.state.apply_health_policy(rail_reports.HealthPolicy(by.document))

    def report(self, name: str, *conditions: Mapping[str, str]) -> None:
        """Give a node these conditions by one event."""
        self.state.upsert_node(with_conditions(self.nodes[name], *conditions))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.now += seconds
        self.state.expire_reports()

    def list_rails(self, name: str, fabric: str = "roce") -> Sequence[str]:
        """Return the excluded and avoided rails of a node: `rail3 excluded`."""
        rows = self.state.health.list_effects(name, fabric)
        return [f"{row.rail} {'excluded' if row.is_excluded else 'avoided'}" for row in rows]
