"""Finds networks, resources and devices that a valid policy names and the cluster lacks, for the policy's author.

The policy is still accepted, because networks and nodes may be added later.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from railwright.fabric import names, text
from railwright.fabric.policy import model

Networks = Mapping[tuple[str, str], str | None]
_MAX_NAMES = 4  # names in a message; the others are counted


def find(document: model.FabricPolicy, networks: Networks | None, offered: Collection[str] | None) -> tuple[str, ...]:
    """Return a message for each shortcoming of each fabric.

    `networks` maps NetworkAttachmentDefinitions to the resource that each names. `offered` has the resources that at
    least one node has. None means unknown.
    """
    messages: list[str] = []
    for name, fabric in document.fabrics.items():
        if fabric.transport is not model.Transport.TCP:
            path = f"fabrics.{name}.rails"
            network_resources = {rail.name: _find_network_resource(rail, networks or {}) for rail in fabric.rails}
            if networks is not None:
                messages += _check_networks(path, fabric, networks)
                messages += _check_resources(path, fabric, networks)
            messages += _check_conflicts(path, fabric, network_resources)
            if offered is not None:
                messages += _check_nodes(path, fabric, network_resources, offered)
    return tuple(messages)


def _check_networks(path: str, fabric: model.Fabric, networks: Networks) -> Iterator[str]:
    missing = {
        rail.name: rail.network for rail in fabric.rails if rail.network and _split_name(rail.network) not in networks
    }
    if missing:
        yield (
            f"{path}: NetworkAttachmentDefinition {_join(missing.values())} does not exist, so pods with "
            f"{_join(missing)} are rejected; create it or correct `network`"
        )


def _check_resources(path: str, fabric: model.Fabric, networks: Networks) -> Iterator[str]:
    usable = [rail for rail in fabric.rails if not rail.network or _split_name(rail.network) in networks]
    missing = [rail.name for rail in usable if not rail.resource and not _find_network_resource(rail, networks)]
    if missing and not fabric.mounts.dev_infiniband and fabric.transport is not model.Transport.PVRDMA:
        yield (
            f"{path}: no device is requested for {_join(missing)}: neither the rail's `resource` nor "
            f"annotation {names.NAD_RESOURCE_NAME} of its network names a resource; set `resource`, unless another "
            "rail's resource includes the device"
        )


def _check_conflicts(path: str, fabric: model.Fabric, network_resources: Mapping[str, str | None]) -> Iterator[str]:
    for rail in fabric.rails:
        network_resource = network_resources[rail.name]
        if network_resource and rail.resource and network_resource != rail.resource:
            yield (
                f"{path}: {rail.name} has resource {rail.resource}, but its network {rail.network} names "
                f"{network_resource}, so pods request both; set both to the same resource"
            )
            return


def _check_nodes(
    path: str, fabric: model.Fabric, network_resources: Mapping[str, str | None], offered: Collection[str]
) -> Iterator[str]:
    resources = [rail.resource or network_resources[rail.name] for rail in fabric.rails]
    missing = [resource for resource in resources if resource and resource not in offered]
    if missing:
        yield (
            f"{path}: no node offers {_join(missing)} now, so pods stay Pending; check the device plugin, or correct "
            "`resource`"
        )


def _find_network_resource(rail: model.Rail, networks: Networks) -> str | None:
    """Return the resource that the rail's network names."""
    return networks.get(_split_name(rail.network)) if rail.network else None


def _split_name(network: str) -> tuple[str, str]:
    namespace, _, name = network.partition("/")
    return (namespace, name)


def _join(words: Iterable[str]) -> str:
    return text.join_first(words, _MAX_NAMES)
