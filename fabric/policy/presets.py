"""Which keys name the domains of a fabric, closest first, for the well-known label schemes and for HyperNodes.

Owns the table of presets. Knows no nodes: whether a node carries a label is the topology's question.
"""

from collections.abc import Mapping

from fabric import hypernodes
from fabric.policy import model

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
