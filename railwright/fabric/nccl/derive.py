"""Facts of a fabric -> the environment of its ranks, in a fixed order, each variable with its reason.

Owns the order (common block, then the transport's table) and which table a transport has. Refuses to know pods,
literals of the policy and how the values travel.
"""

from collections.abc import Mapping, Sequence

from railwright.fabric.nccl import common, libraries, model
from railwright.fabric.nccl.transports import efa, erdma, infiniband, pvrdma, roce, tcp
from railwright.fabric.policy.model import Fabric, Rail, Transport

_TABLES: Mapping[Transport, tuple[model.Row, ...]] = {
    Transport.ROCE: roce.ROWS,
    Transport.INFINIBAND: infiniband.ROWS,
    Transport.ERDMA: erdma.ROWS,
    Transport.PVRDMA: pvrdma.ROWS,
    Transport.EFA: efa.ROWS,
    Transport.TCP: tcp.ROWS,
}


def derive(
    fabric: Fabric,
    rails: Sequence[Rail],
    devices: Sequence[str] | None,
    primary_interface: str,
    host_network: bool,  # noqa: FBT001 - the fifth fact of a case, always passed by name or as a variable
) -> tuple[model.Variable, ...]:
    """What a rank needs. `devices` None: they are not known or not one set, so no variable names them."""
    case = _case(fabric, rails, devices, primary_interface, host_network)
    return _fill(common.ROWS + _TABLES[fabric.transport], case) if fabric.nccl.derive else ()


def beside(
    fabric: Fabric,
    rails: Sequence[Rail],
    devices: Sequence[str] | None,
    primary_interface: str,
    host_network: bool,  # noqa: FBT001 - as above
) -> tuple[model.Variable, ...]:
    """What a rank needs of every library beside NCCL; each only where the rank shows that it uses the library."""
    case = _case(fabric, rails, devices, primary_interface, host_network)
    return _fill(libraries.rows(fabric.transport), case) if fabric.nccl.derive else ()


def pins(fabric: Fabric, primary_interface: str, host_network: bool) -> tuple[model.Variable, ...]:  # noqa: FBT001 - as above
    """What mpirun needs on a launcher to keep its own traffic off the rails."""
    case = _case(fabric, (), None, primary_interface, host_network)
    return _fill(common.LAUNCHER_ROWS, case) if fabric.nccl.derive else ()


def _case(
    fabric: Fabric,
    rails: Sequence[Rail],
    devices: Sequence[str] | None,
    primary_interface: str,
    host_network: bool,  # noqa: FBT001 - as above
) -> model.Case:
    known = None if devices is None else tuple(devices)
    return model.Case(fabric, tuple(rails), known, primary_interface, host_network)


def _fill(rows: Sequence[model.Row], case: model.Case) -> tuple[model.Variable, ...]:
    filled = ((row, row.value(case)) for row in rows)
    return tuple(model.Variable(row.name, value, row.reason, row.source) for row, value in filled if value is not None)
