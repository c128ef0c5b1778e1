"""What a valid policy lacks in this cluster, for the operator who writes it: networks, resources of rails, devices.

Owns the sentences; nothing here refuses a policy, because networks and nodes may come later. What a pod's author is
told is injection's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from railwright.fabric import names
from railwright.fabric.policy import model

Networks = Mapping[tuple[str, str], str | None]
_SHOWN = 4  # names that a sentence lists before it counts


def find(document: model.FabricPolicy, networks: Networks | None, offered: Collection[str] | None) -> tuple[str, ...]:
    """Return a sentence for each fabric and shortcoming.

    `networks` are the NetworkAttachmentDefinitions with the resource that each names, `offered` the resources that
    some node has; None where that is not known.
    """
    found: list[str] = []
    for name, fabric in document.fabrics.items():
        if fabric.transport is not model.Transport.TCP:
            where = f"fabrics.{name}.rails"
            pools = {rail.name: _pool(rail, networks or {}) for rail in fabric.rails}
            if networks is not None:
                found += _without_network(where, fabric, networks)
                found += _without_resource(where, fabric, networks)
            found += _contradicting(where, fabric, pools)
            if offered is not None:
                found += _without_node(where, fabric, pools, offered)
    return tuple(found)


def _without_network(where: str, fabric: model.Fabric, networks: Networks) -> Iterator[str]:
    missing = {rail.name: rail.network for rail in fabric.rails if rail.network and _key(rail.network) not in networks}
    if missing:
        yield (
            f"{where}: NetworkAttachmentDefinition {_some(missing.values())} does not exist, so pods with "
            f"{_some(missing)} are refused; create it or correct `network`"
        )


def _without_resource(where: str, fabric: model.Fabric, networks: Networks) -> Iterator[str]:
    there = [rail for rail in fabric.rails if not rail.network or _key(rail.network) in networks]
    missing = [rail.name for rail in there if not rail.resource and not _pool(rail, networks)]
    if missing and not fabric.mounts.dev_infiniband and fabric.transport is not model.Transport.PVRDMA:
        yield (
            f"{where}: no device is requested for {_some(missing)}: neither `resource` nor annotation "
            f"{names.NAD_RESOURCE_NAME} of the network names one; set `resource`, unless that of another rail brings it"
        )


def _contradicting(where: str, fabric: model.Fabric, pools: Mapping[str, str | None]) -> Iterator[str]:
    for rail in fabric.rails:
        pool = pools[rail.name]
        if pool and rail.resource and pool != rail.resource:
            yield (
                f"{where}: {rail.name} has resource {rail.resource}, and its network {rail.network} draws on {pool}, "
                "so pods request both; make them the same"
            )
            return


def _without_node(
    where: str, fabric: model.Fabric, pools: Mapping[str, str | None], offered: Collection[str]
) -> Iterator[str]:
    wanted = [rail.resource or pools[rail.name] for rail in fabric.rails]
    missing = [resource for resource in wanted if resource and resource not in offered]
    if missing:
        yield (
            f"{where}: no node offers {_some(missing)} now, so pods wait for one that does; check the device plugin, "
            "or correct `resource`"
        )


def _pool(rail: model.Rail, networks: Networks) -> str | None:
    """The resource that the rail's network names."""
    return networks.get(_key(rail.network)) if rail.network else None


def _key(network: str) -> tuple[str, str]:
    namespace, _, name = network.partition("/")
    return (namespace, name)


def _some(words: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(words))
    more = len(distinct) - _SHOWN
    return ", ".join(distinct) if more <= 0 else f"{', '.join(distinct[:_SHOWN])} and {more} more"
