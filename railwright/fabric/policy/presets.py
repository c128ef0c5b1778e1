"""Which keys name the domains of a fabric, closest first, for the well-known label schemes and for HyperNodes.

Owns the table of presets. Knows no nodes: whether a node carries a label is the topology's question.
"""

from collections.abc import Mapping
from typing import Literal

from railwright.fabric import hypernodes, topology
from railwright.fabric.policy import model

# Sources: knowledge/scheduling.md 2.3, the label schemes of topograph and the clouds.
DOMAINS: Mapping[str, tuple[str, ...]] = {
    # topograph 1.0 and newer numbers tiers from the node outwards; the depth varies, absent labels are skipped
    "topograph": tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(3)),
    "topograph-legacy": tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core")),
    # AWS counts layers from the top: 3 is nearest the instance
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
    # gce-topology-host is left out: a domain of one node says nothing about the network
    "gke": ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    "oci": ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    "coreweave": tuple(f"backend.coreweave.cloud/{tier}" for tier in ("leafgroup", "superpod", "fabric")),
    "volcano": hypernodes.LEVELS,  # no labels: keys of the levels of HyperNode objects, as many as there are
}


def domains(placement: model.Placement) -> tuple[str, ...]:
    """Keys of the fabric's domains, closest first; explicit `domains` win over the preset."""
    if placement.domains or placement.preset is None:
        return placement.domains
    return DOMAINS[placement.preset]


def uplinks(placement: model.Placement) -> Literal["rail", "bundle"]:
    """Whether each rail has uplinks of its own, or all rails of a node share those of its switch.

    Where the policy does not say, domains that name a switch for each rail do.
    """
    if placement.uplinks is not None:
        return placement.uplinks
    return "rail" if any(topology.RAIL in key for key in domains(placement)) else "bundle"
