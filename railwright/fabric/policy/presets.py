"""Node labels and HyperNode levels that each value of `placement.preset` stands for, closest domain first."""

from collections.abc import Mapping

from railwright.fabric import hypernodes, topology
from railwright.fabric.policy import model

# Sources: NVIDIA topograph and the cloud providers' documentation of their node labels.
DOMAINS: Mapping[str, tuple[str, ...]] = {
    # topograph 1.0 and newer numbers tiers from the node upwards; nodes may have fewer labels
    "topograph": tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(3)),
    "topograph-legacy": tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core")),
    # AWS numbers layers from the top: layer 3 is closest to the instance
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
    # without gce-topology-host, which is a domain of a single node
    "gke": ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    "oci": ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    "coreweave": tuple(f"backend.coreweave.cloud/{tier}" for tier in ("leafgroup", "superpod", "fabric")),
    "volcano": hypernodes.LEVELS,  # not labels, but keys for the levels of HyperNode objects
}


def list_domain_keys(placement: model.Placement) -> tuple[str, ...]:
    """Return the label keys or HyperNode levels of a fabric's domains, closest first. `domains` overrides `preset`."""
    if placement.domains or placement.preset is None:
        return placement.domains
    return DOMAINS[placement.preset]


def list_single_keys(placement: model.Placement) -> tuple[str, ...]:
    """Return the keys of a fabric's domains, closest first, without those that have a label for each rail ({rail})."""
    return tuple([key for key in list_domain_keys(placement) if topology.RAIL not in key])


def has_own_uplinks(placement: model.Placement) -> bool:
    """True if each rail has its own leaf and uplinks, because a domain's key contains {rail}."""
    return any(topology.RAIL in key for key in list_domain_keys(placement))
