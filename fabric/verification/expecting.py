"""What a log should show, by the policy: how many rails, of which transport, and what their devices are called.

Owns that reading of a fabric. Knows no log.
"""

from fabric.policy import model as policies
from fabric.verification import model


def of(document: policies.FabricPolicy, name: str) -> model.Expected:
    """Of a fabric that has rails; each pod has all of them, as the job of `railwright verify manifest` does.

    `devicesPerRail` counts NICs on EFA only: a shared device plugin gives one HCA, however many are asked for.
    """
    fabric = document.fabrics[name]
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
    return model.Expected(
        rails=len(fabric.rails) * per_rail,
        transport=fabric.transport,
        devices=tuple(devices) if all(devices) else (),
    )
