"""Derives from the policy what the log of a job should show: number of rails, transport, device names.

Reads the policy only, never a log.
"""

from railwright.fabric.policy import model as policies
from railwright.fabric.verification import log_types


def expect(document: policies.FabricPolicy, fabric_name: str) -> log_types.Expected:
    """Return what each pod of a job on this fabric should use: all rails of the fabric.

    The fabric must have rails. `devicesPerRail` is the number of NICs on EFA only: a shared device plugin hands out
    one HCA for any number of requested devices.
    """
    fabric = document.fabrics[fabric_name]
    per_rail = fabric.devices_per_rail if fabric.transport is policies.Transport.EFA else 1
    devices = [
        tuple(
            sorted(
                {
                    device
                    for device in (rail.device, *(shape.devices.get(rail.name) for shape in document.node_shapes))
                    if device
                }
            )
        )
        for rail in fabric.rails
    ]
    return log_types.Expected(
        rails=len(fabric.rails) * per_rail,
        transport=fabric.transport,
        devices=tuple(devices) if all(devices) else (),
        names=tuple([rail.name for rail in fabric.rails]),
    )
