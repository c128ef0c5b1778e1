"""Names the drivers of ResourceSlices, and whether the tests have slices as these drivers write them."""

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import skip
from railwright.fabric import text
from railwright.fabric.claims import drivers

_SLICES = "device-slices"
_SEE_VERSION = "slices have no version; the driver's own is in the tag of its image: kubectl get daemonsets -A -o wide"


def _check_drivers(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """List the drivers. The row is never ticked, because the version of a driver that runs is in no slice."""
    nodes: dict[str, set[str]] = {}
    for offered in snapshot.get_all(_SLICES):
        spec = offered.spec
        nodes.setdefault(spec.driver, set()).update({spec.node_name, *(device.node_name for device in spec.devices)})
    if not nodes:
        return skip("there are no ResourceSlices")
    return skip("; ".join([*(_describe(name, len(on - {""})) for name, on in sorted(nodes.items())), _SEE_VERSION]))


def _describe(driver: str, nodes: int) -> str:
    where = f"{driver} on {text.format_count(nodes, 'node')}" if nodes else driver
    tested = drivers.TESTED_SLICES.get(driver)
    return f"{where} ({'tested with slices of ' + ', '.join(tested) if tested else 'not tested'})"


CHECKS: check_rows.Checks = {
    "claim-drivers": _check_drivers,
}
