"""What a container holds of a fabric before anything is done to it: devices, mounts, settings, capabilities.

Owns the weighing by which a container that was given the fabric in an earlier call is known again, wherever other
webhooks have moved it. Reads the container alone.
"""

import functools
from collections.abc import Callable, Sequence

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, rails, tables, targets
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model as policies


def weigher(
    name: str, document: policies.FabricPolicy, chosen: Sequence[rails.Chosen]
) -> Callable[[views.Container], targets.Held]:
    """How much of fabric `name` a container holds; devices outweigh mounts, and those what is only written down."""
    fabric = document.fabrics[name]
    resources = {each.resource for each in chosen if each.resource is not None}
    ours = functools.cache(lambda: _settings(name, document, chosen))  # not made for a pod where nothing is weighed

    def held(container: views.Container) -> targets.Held:
        settings = ours() if container.env_or_none else ()
        context = container.security_context
        added = (context.capabilities.add if context and context.capabilities else None) or ()
        return (
            sum(accelerators.amount(container, resource) > 0 for resource in resources),
            sum(each.name.startswith(names.VOLUME_PREFIX) for each in container.volume_mounts),
            sum((each.name, each.value) in settings for each in container.env),
            sum(each in added for each in fabric.security.capabilities),
            int(fabric.security.privileged and bool(context and context.privileged)),
        )

    return held


def equipped(held: targets.Held) -> bool:
    """True where a container has devices or mounts of the fabric, which are what a template is given."""
    devices, mounts, *_ = held
    return bool(devices or mounts)


def _settings(name: str, document: policies.FabricPolicy, chosen: Sequence[rails.Chosen]) -> set[tuple[str, str]]:
    """Names and values as we write them, whatever the role; the list of devices is not among them."""
    fabric = document.fabrics[name]
    rank = tables.of(document).rank(name, [each.rail for each in chosen], None, host_network=False)
    pins = derive.pins(fabric, document.primary_interface, host_network=False)
    return {(each.name, each.value) for each in rank.all} | {(each.name, each.value) for each in pins}
