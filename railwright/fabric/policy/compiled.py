"""Compiles a policy document: resolves its rails and lists its resources, once for each version of the policy.

Call `policy.compile_once(compiled.compile_policy)`.
"""

from collections.abc import Mapping

import msgspec

from railwright.fabric.claims import claim_templates
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
    claim: claim_templates.ClaimedRail | None = None

    def with_resource(self, resource_by_network: Mapping[Network, str | None] | None) -> "ResolvedRail":
        """Return the rail with the resource of its network, unless the policy names one."""
        if self.resource is not None or self.network is None or resource_by_network is None:
            return self
        return ResolvedRail(self.rail, resource_by_network.get(self.network), self.network)


class CompiledFabric(msgspec.Struct, frozen=True):
    """A fabric with its resolved rails and compiled claims."""

    fabric: model.Fabric
    claims: claim_templates.ClaimedFabric | None
    rails: Mapping[str, ResolvedRail]  # by name, in the fabric's order


class CompiledPolicy(msgspec.Struct, frozen=True):
    """A policy document with its compiled fabrics."""

    document: model.PolicyDocument
    fabrics: Mapping[str, CompiledFabric]
    resources: frozenset[str]  # that the policy names for all fabrics; pods may request them


def compile_policy(document: model.PolicyDocument) -> CompiledPolicy:
    """Compile a valid document."""
    fabrics = {name: _compile_fabric(name, document) for name in document.fabrics}
    return CompiledPolicy(
        document=document,
        fabrics=fabrics,
        resources=frozenset(
            name
            for fabric in document.fabrics.values()
            for name in (*[rail.resource for rail in fabric.rails], *fabric.resources)
            if name
        ),
    )


def resolve_rail(rail: model.Rail, claim: claim_templates.ClaimedRail | None = None) -> ResolvedRail:
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
