"""Measures how much of a fabric a container has: devices, mounts, capabilities and variables.

The score identifies the container that an earlier call has mutated, also after other webhooks moved it. Only the
container is read, never the record.
"""

import functools
from collections.abc import Callable, Sequence

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, env_tables, rails, targets
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model as policies


def build_scorer(
    name: str, document: policies.FabricPolicy, selected: Sequence[rails.Chosen]
) -> Callable[[views.Container], targets.InjectionScore]:
    """Return a function that measures how much of fabric `name` a container has.

    Devices count more than mounts, and mounts more than variables, then capabilities, then privilege.
    """
    fabric = document.fabrics[name]
    resources = {rail.resource for rail in selected if rail.resource is not None}
    get_settings = functools.cache(
        lambda: _list_settings(name, document, selected)
    )  # built only if a container is measured

    def measure(container: views.Container) -> targets.InjectionScore:
        settings = get_settings() if container.env_or_none else ()
        security = container.security_context
        added_capabilities = (security.capabilities.add if security and security.capabilities else None) or ()
        return (
            sum(accelerators.read_amount(container, resource) > 0 for resource in resources),
            sum(mount.name.startswith(names.VOLUME_PREFIX) for mount in container.volume_mounts),
            sum((entry.name, entry.value) in settings for entry in container.env),
            sum(capability in added_capabilities for capability in fabric.security.capabilities),
            int(fabric.security.privileged and bool(security and security.privileged)),
        )

    return measure


def has_injection(score: targets.InjectionScore) -> bool:
    """True if a container has devices or mounts of the fabric, which are what a template gets."""
    devices, mounts, *_ = score
    return bool(devices or mounts)


def _list_settings(
    name: str, document: policies.FabricPolicy, selected: Sequence[rails.Chosen]
) -> set[tuple[str, str]]:
    """Return names and values as railwright writes them for any role, without the device list."""
    fabric = document.fabrics[name]
    rank_settings = env_tables.get_tables(document).get_rank_settings(
        name, [rail.rail for rail in selected], None, host_network=False
    )
    launcher_settings = derive.pins(fabric, document.primary_interface, host_network=False)
    return {(variable.name, variable.value) for variable in rank_settings.all} | {
        (variable.name, variable.value) for variable in launcher_settings
    }
