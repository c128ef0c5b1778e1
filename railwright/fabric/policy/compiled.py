"""Derives what follows from a policy document alone, computed once for each version of the policy.

Get it by `policy.compile_once(compiled.compile_policy)`. Tables of upper packages, such as the environment of ranks,
are kept with the policy in the same way.
"""

from collections.abc import Mapping

import msgspec

from railwright.fabric.policy import claimed_rails, model

Network = tuple[str, str]
"""Namespace and name of a NetworkAttachmentDefinition."""


class ResolvedRail(msgspec.Struct, frozen=True):
    """A rail with its resource and network. The resource is None until its network's resource is known.

    The resource of a rail that comes as claims is the one under which its devices count; no pod requests it.
    """

    rail: model.Rail
    resource: str | None
    network: Network | None
    claim: claimed_rails.ClaimedRail | None = None

    @property
    def name(self) -> str:
        """Return the rail's name."""
        return self.rail.name

    def with_resource(self, resource_by_network: Mapping[Network, str | None] | None) -> "ResolvedRail":
        """Return the rail with the resource of its network, unless the policy names one."""
        if self.resource is not None or self.network is None or resource_by_network is None:
            return self
        return ResolvedRail(self.rail, resource_by_network.get(self.network), self.network)


class CompiledFabric(msgspec.Struct, frozen=True):
    """A fabric with what follows from it."""

    fabric: model.Fabric
    claims: claimed_rails.CompiledClaims | None
    rails: Mapping[str, ResolvedRail]  # by name, in the fabric's order

    @property
    def claimed_values(self) -> frozenset[str | int]:
        """Return the attribute values by which claims select the rails; with Multus these are names of resources."""
        claims = self.claims.rails.values() if self.claims else ()
        return frozenset(value for rail in claims for value in rail.selector.values)


class CompiledPolicy(msgspec.Struct, frozen=True):
    """A policy document with what follows from it."""

    document: model.PolicyDocument
    fabrics: Mapping[str, CompiledFabric]
    resources: frozenset[str]  # that the policy names for all fabrics; pods may request them
    claimed_networks: frozenset[Network]  # of rails that come as claims: no pod requests a resource for them
    claimed_values: frozenset[str | int]  # by which claims of all fabrics select their rails

    def find_pool(self, network: Network, resource_by_network: Mapping[Network, str | None] | None) -> str | None:
        """Return the resource from which a device plugin serves a network.

        The annotation of a rail's network may name a resource that a driver of claims serves; that is no such pool.
        """
        resource = (resource_by_network or {}).get(network)
        return None if network in self.claimed_networks or resource in self.claimed_values else resource


def compile_policy(document: model.PolicyDocument) -> CompiledPolicy:
    """Compile a valid document."""
    fabrics = {name: _compile_fabric(name, document) for name in document.fabrics}
    claimed = [fabric for fabric in fabrics.values() if fabric.claims]
    return CompiledPolicy(
        document=document,
        fabrics=fabrics,
        claimed_networks=frozenset(
            rail.network for fabric in claimed for rail in fabric.rails.values() if rail.network
        ),
        claimed_values=frozenset().union(*(fabric.claimed_values for fabric in claimed)),
        resources=frozenset(
            name
            for fabric in document.fabrics.values()
            for name in (*[rail.resource for rail in fabric.rails], *fabric.resources)
            if name
        ),
    )


def resolve_rail(rail: model.Rail, claim: claimed_rails.ClaimedRail | None = None) -> ResolvedRail:
    """Return the rail with the resource that the policy names or that stands for its claims, and with its network."""
    resource = rail.resource if claim is None else claim.resource
    return ResolvedRail(rail, resource, rail.network_key, claim)


def _compile_fabric(name: str, document: model.PolicyDocument) -> CompiledFabric:
    fabric = document.fabrics[name]
    claims = claimed_rails.compile_claims(name, document)
    return CompiledFabric(
        fabric=fabric,
        claims=claims,
        rails={rail.name: resolve_rail(rail, claims.rails[rail.name] if claims else None) for rail in fabric.rails},
    )
