"""Finds networks, addresses, devices and node labels that a valid policy needs and the cluster lacks.

Such a policy is accepted, because networks and nodes may be added later.
"""

import ipaddress
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from railwright.fabric import hypernodes, text, topology
from railwright.fabric.multus import ipam
from railwright.fabric.policy import compiled, model
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

# transports whose rails need no resource
TRANSPORTS_WITHOUT_RESOURCE = frozenset({model.Transport.PVRDMA, model.Transport.PLUGIN, model.Transport.TCP})
_MAX_LIST_LENGTH = 30  # characters of a list in a message with two lists, or with a long remedy
# Fix that gives the webhook its rights to ResourceClaimTemplates; short, because warnings have 256 characters
GRANT_CLAIMS = "set webhook.claims=true (Helm) or add manifests/components/claims"
Networks = Mapping[tuple[str, str], str | None]
Configurations = Mapping[tuple[str, str], ipam.NetworkConfiguration]
_UNKNOWN = ipam.NetworkConfiguration()


class Cluster(NamedTuple):
    """Facts about networks and nodes of a cluster. A field is None if it is unknown."""

    networks: Networks | None = None  # NetworkAttachmentDefinition -> the resource that it names
    configurations: Configurations | None = None  # NetworkAttachmentDefinition -> its CNI configuration
    offered: Collection[str] | None = None  # resources that are allocatable on some node
    node_devices: Collection[Mapping[str, int]] | None = None  # devices that a node has, by resource
    node_labels: Collection[Mapping[str, str]] | None = None  # of each node


NOTHING_KNOWN = Cluster()


def find_shortcomings(document: model.PolicyDocument, cluster: Cluster = NOTHING_KNOWN) -> tuple[reasons.Reason, ...]:
    """Return a reason for each thing that the policy or one of its fabrics needs and the cluster lacks."""
    shortcomings = [] if cluster.offered is None else [*_check_accelerators(document, cluster.offered)]
    if cluster.node_labels is not None:
        shortcomings += _check_shapes(document.node_shapes, cluster.node_labels)
    for name, fabric in document.fabrics.items():
        shortcomings += find_fabric_shortcomings(fabric, document.accelerators, cluster, f"fabrics.{name}.")
    return tuple(shortcomings)


def list_unused_shapes(shapes: Sequence[model.NodeShape], node_labels: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the names of shapes that no node has. A node has the first shape whose `match` fits its labels."""
    used = {shape.name for labels in node_labels if (shape := model.find_shape(shapes, labels))}
    return [shape.name for shape in shapes if shape.name not in used]


def find_fabric_shortcomings(
    fabric: model.Fabric, accelerators: Sequence[str], cluster: Cluster, path: str = ""
) -> Iterator[reasons.Reason]:
    """Yield a reason for each thing that a fabric needs and the cluster lacks.

    `path` precedes the keys in messages, such as `fabrics.NAME.`. Rails that pods request by claims need no resource.
    """
    networks, offered, rails = cluster.networks, cluster.offered, f"{path}rails"
    if fabric.transport is model.Transport.TCP:
        return
    if networks is not None:
        yield from _check_networks(rails, fabric, networks)
    if cluster.configurations is not None:
        yield from _check_configurations(rails, fabric, cluster.configurations)
        yield from _check_addresses(path, fabric, cluster.configurations)
    if cluster.node_labels is not None:
        yield from _check_domains(path, fabric, cluster.node_labels)
    if fabric.claims is not None:
        return
    network_resources = {rail.name: _find_network_resource(rail, networks or {}) for rail in fabric.rails}
    if networks is not None:
        yield from _check_resources(rails, fabric, networks)
    yield from _check_conflicts(rails, fabric, network_resources)
    if offered is not None:
        yield from _check_nodes(rails, fabric, network_resources, offered)
    if cluster.node_devices is not None:
        yield from _check_gpus(path, fabric, accelerators, cluster.node_devices)


def _check_accelerators(document: model.PolicyDocument, offered: Collection[str]) -> Iterator[reasons.Reason]:
    come_as_claims = any(fabric.claims and fabric.claims.accelerator_class for fabric in document.fabrics.values())
    if not come_as_claims and not any(resource in offered for resource in document.accelerators):
        yield reasons.Reason(
            AdmissionCode.DEVICES_NOT_OFFERED,
            f"accelerators: no node offers {text.join_fitting(document.accelerators)} now, so pods that request one "
            "stay Pending",
            fix="correct the names, or check the device plugin",
        )


def _check_shapes(
    shapes: Sequence[model.NodeShape], node_labels: Collection[Mapping[str, str]]
) -> Iterator[reasons.Reason]:
    if unused := list_unused_shapes(shapes, node_labels):
        yield reasons.Reason(
            AdmissionCode.SHAPE_WITHOUT_NODES,
            f"nodeShapes: no node matches the shape {text.join_fitting(unused)}",
            fix="correct its `match`; to list labels: kubectl get nodes --show-labels",
        )


def _check_networks(path: str, fabric: model.Fabric, networks: Networks) -> Iterator[reasons.Reason]:
    missing = {rail.name: rail.network for rail in fabric.rails if rail.network and rail.network_key not in networks}
    if missing:
        networks_missing = text.join_fitting(filter(None, missing.values()), _MAX_LIST_LENGTH)
        yield reasons.Reason(
            AdmissionCode.NETWORK_MISSING,
            f"{path}: NetworkAttachmentDefinition {networks_missing} does not exist, so pods with "
            f"{text.join_fitting(missing, _MAX_LIST_LENGTH)} are rejected",
            fix="create it or correct `network`",
        )


def _check_configurations(path: str, fabric: model.Fabric, configurations: Configurations) -> Iterator[reasons.Reason]:
    """Yield a reason for the first network of a rail whose spec.config Multus cannot read."""
    for rail in fabric.rails:
        if rail.network_key and (error := configurations.get(rail.network_key, _UNKNOWN).error):
            yield reasons.Reason(
                AdmissionCode.NETWORK_INVALID,
                f"{path}: spec.config of NetworkAttachmentDefinition {rail.network} is invalid ({error}), so new pods "
                "do not start",
                fix="correct it",
            )
            return


def _check_addresses(path: str, fabric: model.Fabric, configurations: Configurations) -> Iterator[reasons.Reason]:
    """Yield a reason if no network of a rail has addresses in `nccl.addressRange`: NCCL would find no GID."""
    if fabric.nccl.address_range is None:
        return
    address_range = ipaddress.ip_network(fabric.nccl.address_range, strict=False)
    stated = {
        rail.network: configurations.get(rail.network_key, _UNKNOWN).subnets
        for rail in fabric.rails
        if rail.network_key
    }
    if not stated or not all(stated.values()):
        return  # a network that states no addresses may have them
    if any(
        address_range.version == subnet.version and address_range.overlaps(subnet)
        for subnet in itertools.chain(*stated.values())
    ):
        return
    addresses = text.join_fitting(
        f"{network} has {', '.join(map(str, networks))}" for network, networks in stated.items()
    )
    yield reasons.Reason(
        AdmissionCode.ADDRESSES_DIFFER,
        f"{path}nccl.addressRange: {address_range} has no address of the rails' networks ({addresses}), so NCCL finds "
        "no GID there",
        fix="correct `addressRange`, or the IPAM of the networks",
    )


def _check_domains(
    path: str, fabric: model.Fabric, node_labels: Collection[Mapping[str, str]]
) -> Iterator[reasons.Reason]:
    """Yield a reason for labels in `placement.domains`, or the first label of the preset, that no node has."""
    placement, rails = fabric.placement, [rail.name for rail in fabric.rails]
    keys = placement.domains or compiled.list_domain_keys(placement)[:1]
    labels = [key for key in keys if not hypernodes.has_level((key,))]
    present = set(itertools.chain(*node_labels))
    if missing := [key for key in labels if not set(topology.expand_rails(key, rails)) & present]:
        yield reasons.Reason(
            AdmissionCode.DOMAINS_NOT_LABELLED,
            f"{path}placement: no node has label {text.join_fitting(missing)}, so the label groups no nodes",
            fix="label the nodes, or correct `domains` or `preset`",
        )


def _check_gpus(
    path: str, fabric: model.Fabric, accelerators: Sequence[str], nodes: Collection[Mapping[str, int]]
) -> Iterator[reasons.Reason]:
    """Yield a reason if no node has `gpusPerNode` GPUs."""
    counts = sorted({devices[resource] for devices in nodes for resource in accelerators if resource in devices})
    if fabric.gpus_per_node is not None and counts and fabric.gpus_per_node not in counts:
        yield reasons.Reason(
            AdmissionCode.GPUS_EXCEED_NODE,
            f"{path}gpusPerNode: {fabric.gpus_per_node}, but nodes have {', '.join(map(str, counts))} of "
            f"{text.join_fitting(accelerators)}",
            fix="set it to the number of GPUs of a node",
        )


def _check_resources(path: str, fabric: model.Fabric, networks: Networks) -> Iterator[reasons.Reason]:
    usable = [rail for rail in fabric.rails if not rail.network or rail.network_key in networks]
    missing = [rail.name for rail in usable if not rail.resource and not _find_network_resource(rail, networks)]
    has_devices = fabric.mounts.dev_infiniband or fabric.security.privileged
    if missing and not has_devices and fabric.transport not in TRANSPORTS_WITHOUT_RESOURCE:
        yield reasons.Reason(
            AdmissionCode.RAIL_WITHOUT_RESOURCE,
            f"{path}: no device is requested for {text.join_fitting(missing, _MAX_LIST_LENGTH)}: neither the rail's "
            "`resource` nor annotation k8s.v1.cni.cncf.io/resourceName of its network names a resource",
            fix="set `resource`, unless another rail's resource includes the device",
        )


def _check_conflicts(
    path: str, fabric: model.Fabric, network_resources: Mapping[str, str | None]
) -> Iterator[reasons.Reason]:
    for rail in fabric.rails:
        network_resource = network_resources[rail.name]
        if network_resource and rail.resource and network_resource != rail.resource:
            yield reasons.Reason(
                AdmissionCode.RAIL_RESOURCES_DIFFER,
                f"{path}: {rail.name} has resource {rail.resource}, but its network {rail.network} names "
                f"{network_resource}, so pods request both",
                fix="set both to the same resource",
            )
            return


def _check_nodes(
    path: str, fabric: model.Fabric, network_resources: Mapping[str, str | None], offered: Collection[str]
) -> Iterator[reasons.Reason]:
    resources = [rail.resource or network_resources[rail.name] for rail in fabric.rails]
    missing = [resource for resource in resources if resource and resource not in offered]
    if missing:
        yield reasons.Reason(
            AdmissionCode.DEVICES_NOT_OFFERED,
            f"{path}: no node offers {text.join_fitting(missing)} now, so pods stay Pending",
            fix="check the device plugin, or correct `resource`",
        )


def _find_network_resource(rail: model.Rail, networks: Networks) -> str | None:
    """Return the resource that the network of a rail names, or None."""
    return networks.get(rail.network_key) if rail.network_key else None
