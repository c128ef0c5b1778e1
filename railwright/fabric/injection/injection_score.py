"""Measures how much of a fabric a container has: devices, mounts, capabilities and variables.

The score identifies the container that an earlier call has mutated, even if other webhooks have moved it. It is
computed from the container only, not from the injection record.
"""

from collections.abc import Callable, Collection, Sequence

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, env_tables, targets
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies


def build_scorer(
    name: str, policy: policies.Policy, selected: Sequence[compiled.ResolvedRail]
) -> Callable[[views.Container], targets.InjectionScore]:
    """Return a function that measures how much of fabric `name` a container has.

    Devices count more than mounts, and mounts more than variables, then capabilities, then privilege.
    """
    fabric = policy.document.fabrics[name]
    resources = {rail.resource for rail in selected if rail.resource is not None}

    def measure(container: views.Container) -> targets.InjectionScore:
        literals: Collection[tuple[str, str]] = ()
        if container.env_or_none:
            tables = policy.compile_once(env_tables.Tables)
            literals = tables.list_known_literals(name, [rail.rail for rail in selected])
        security = container.security_context
        added_capabilities = (security.capabilities.add if security and security.capabilities else None) or ()
        return (
            sum(accelerators.read_amount(container, resource) > 0 for resource in resources),
            sum(mount.name.startswith(names.VOLUME_PREFIX) for mount in container.volume_mounts),
            sum((entry.name, entry.value) in literals for entry in container.env),
            sum(capability in added_capabilities for capability in fabric.security.capabilities),
            int(fabric.security.privileged and bool(security and security.privileged)),
        )

    return measure


def has_injection(score: targets.InjectionScore) -> bool:
    """True if a container has devices or mounts of the fabric, which are what a template gets."""
    devices, mounts, *_ = score
    return bool(devices or mounts)
