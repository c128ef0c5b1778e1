"""Finds what a valid policy's author should know: networks and resources that the cluster lacks, and an ignored key.

The policy is still accepted, because networks and nodes may be added later.
"""

from collections.abc import Collection, Iterator, Mapping

from railwright.fabric.policy import model
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_WITHOUT_RESOURCE = frozenset({model.Transport.PVRDMA, model.Transport.PLUGIN})
Networks = Mapping[tuple[str, str], str | None]


def find(
    document: model.PolicyDocument, networks: Networks | None = None, offered: Collection[str] | None = None
) -> tuple[reasons.Reason, ...]:
    """Return a reason for each shortcoming of the document and of each fabric.

    `networks` maps NetworkAttachmentDefinitions to the resource that each names. `offered` has the resources that at
    least one node has. None means unknown. Rails that come as claims need no resource.
    """
    shortcomings = [] if document.kind is None else [reasons.make(AdmissionCode.POLICY_KIND_IGNORED)]
    for name, fabric in document.fabrics.items():
        if fabric.transport is not model.Transport.TCP:
            path = f"fabrics.{name}.rails"
            network_resources = {rail.name: _find_network_resource(rail, networks or {}) for rail in fabric.rails}
            if networks is not None:
                shortcomings += _check_networks(path, fabric, networks)
            if fabric.claims is not None:
                continue
            if networks is not None:
                shortcomings += _check_resources(path, fabric, networks)
            shortcomings += _check_conflicts(path, fabric, network_resources)
            if offered is not None:
                shortcomings += _check_nodes(path, fabric, network_resources, offered)
    return tuple(shortcomings)


def _check_networks(path: str, fabric: model.Fabric, networks: Networks) -> Iterator[reasons.Reason]:
    missing = {rail.name: rail.network for rail in fabric.rails if rail.network and rail.network_key not in networks}
    if missing:
        networks_missing = tuple([network for network in missing.values() if network])
        yield reasons.make(
            AdmissionCode.POLICY_NETWORK_MISSING, path=path, networks=networks_missing, rails=tuple(missing)
        )


def _check_resources(path: str, fabric: model.Fabric, networks: Networks) -> Iterator[reasons.Reason]:
    usable = [rail for rail in fabric.rails if not rail.network or rail.network_key in networks]
    missing = [rail.name for rail in usable if not rail.resource and not _find_network_resource(rail, networks)]
    if missing and not fabric.mounts.dev_infiniband and fabric.transport not in _WITHOUT_RESOURCE:
        yield reasons.make(AdmissionCode.POLICY_RESOURCE_UNSET, path=path, rails=tuple(missing))


def _check_conflicts(
    path: str, fabric: model.Fabric, network_resources: Mapping[str, str | None]
) -> Iterator[reasons.Reason]:
    for rail in fabric.rails:
        network_resource = network_resources[rail.name]
        if network_resource and rail.resource and network_resource != rail.resource:
            yield reasons.make(
                AdmissionCode.POLICY_RESOURCES_DIFFER,
                path=path,
                rail=rail.name,
                resource=rail.resource,
                network=rail.network or "",
                network_resource=network_resource,
            )
            return


def _check_nodes(
    path: str, fabric: model.Fabric, network_resources: Mapping[str, str | None], offered: Collection[str]
) -> Iterator[reasons.Reason]:
    resources = [rail.resource or network_resources[rail.name] for rail in fabric.rails]
    missing = [resource for resource in resources if resource and resource not in offered]
    if missing:
        yield reasons.make(AdmissionCode.POLICY_RESOURCE_NOT_OFFERED, path=path, resources=tuple(missing))


def _find_network_resource(rail: model.Rail, networks: Networks) -> str | None:
    """Return the resource that the rail's network names."""
    return networks.get(rail.network_key) if rail.network_key else None
