"""Derives the environment of a fabric's ranks from the policy. Each variable has a reason.

The order is fixed: variables of every fabric first, then those of the transport. The policy's `env` and the way the
variables reach a container are handled by `fabric/injection`.
"""

from collections.abc import Mapping, Sequence

from railwright.fabric.nccl import common, derivation_types, libraries
from railwright.fabric.nccl.transports import efa, erdma, infiniband, pvrdma, roce, tcp
from railwright.fabric.policy.model import Fabric, Rail, Transport
from railwright.fabric.reasons import reason

_TABLES: Mapping[Transport, tuple[derivation_types.Row, ...]] = {
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
    host_network: bool,  # noqa: FBT001 - the fifth field of a Case, always passed by name or as a variable
) -> tuple[derivation_types.Variable, ...]:
    """Return the variables of a rank.

    If `devices` is None, the devices are unknown or differ between nodes, so no variable lists them.
    """
    case = _build_case(fabric, rails, devices, primary_interface, host_network)
    return _evaluate(common.ROWS + _TABLES[fabric.transport], case) if fabric.nccl.derive else ()


def derive_library_variables(
    fabric: Fabric,
    rails: Sequence[Rail],
    devices: Sequence[str] | None,
    primary_interface: str,
    host_network: bool,  # noqa: FBT001 - as above
) -> tuple[derivation_types.Variable, ...]:
    """Return the variables of libraries other than NCCL. The caller keeps those of libraries that the rank uses."""
    case = _build_case(fabric, rails, devices, primary_interface, host_network)
    return _evaluate(libraries.list_rows(fabric.transport), case) if fabric.nccl.derive else ()


def derive_launcher_settings(
    fabric: Fabric,
    primary_interface: str,
    host_network: bool,  # noqa: FBT001 - as above
) -> tuple[derivation_types.Variable, ...]:
    """Return the variables that keep mpirun's own traffic on a launcher off the rails."""
    case = _build_case(fabric, (), None, primary_interface, host_network)
    return _evaluate(common.LAUNCHER_ROWS, case) if fabric.nccl.derive else ()


def _build_case(
    fabric: Fabric,
    rails: Sequence[Rail],
    devices: Sequence[str] | None,
    primary_interface: str,
    host_network: bool,  # noqa: FBT001 - as above
) -> derivation_types.Case:
    device_names = None if devices is None else tuple(devices)
    return derivation_types.Case(fabric, tuple(rails), device_names, primary_interface, host_network)


def _evaluate(
    rows: Sequence[derivation_types.Row], case: derivation_types.Case
) -> tuple[derivation_types.Variable, ...]:
    rows_with_values = ((row, row.value(case)) for row in rows)
    return tuple(
        derivation_types.Variable(row.name, value, reason.make(row.code))
        for row, value in rows_with_values
        if value is not None
    )
