"""Variables of every fabric: they keep control traffic on the pod's primary interface.

`ROWS` are for ranks, `LAUNCHER_ROWS` for mpirun on a launcher. Variables of other libraries are in `libraries`.
"""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.reasons.codes import VariableCode

ROWS = (
    Row(
        "NCCL_SOCKET_IFNAME",
        values.return_primary_interface(lambda name: f"={name}"),
        VariableCode.BOOTSTRAP_INTERFACE,
    ),
    Row(
        "GLOO_SOCKET_IFNAME",
        values.return_primary_interface(str),
        VariableCode.GLOO_INTERFACE,
    ),
    Row(
        "TP_SOCKET_IFNAME",
        values.return_primary_interface(str),
        VariableCode.TENSOR_PIPE_INTERFACE,
    ),
    Row("NCCL_DEBUG", values.return_policy_value("debug"), VariableCode.LOG_LEVEL),
)

LAUNCHER_ROWS = (
    Row(
        "OMPI_MCA_oob_tcp_if_include",
        values.return_primary_interface(str),
        VariableCode.OPEN_MPI_CONTROL_INTERFACE,
    ),
    Row(
        "OMPI_MCA_btl_tcp_if_include",
        values.return_primary_interface(str),
        VariableCode.OPEN_MPI_TCP_INTERFACE,
    ),
    Row(
        "PRTE_MCA_prte_if_include",
        values.return_primary_interface(str),
        VariableCode.PRTE_INTERFACE,
    ),
)

# A variable is left out if the user has set one of these: include and exclude lists are mutually exclusive.
# Open MPI 5's mpirun reads OMPI_MCA_oob_* as PRTE_MCA_oob_* (PRRTE, schizo_ompi.c, check_prte_overlap).
CONFLICTING_VARIABLES = {
    "OMPI_MCA_oob_tcp_if_include": (
        "OMPI_MCA_oob_tcp_if_exclude",
        "PRTE_MCA_prte_if_exclude",
        "PRTE_MCA_oob_tcp_if_exclude",
    ),
    "OMPI_MCA_btl_tcp_if_include": ("OMPI_MCA_btl_tcp_if_exclude",),
    "PRTE_MCA_prte_if_include": (
        "PRTE_MCA_prte_if_exclude",
        "PRTE_MCA_oob_tcp_if_include",  # old name of the same parameter
        "PRTE_MCA_oob_tcp_if_exclude",
        "OMPI_MCA_oob_tcp_if_include",  # no conflict if it has the value that railwright sets
        "OMPI_MCA_oob_tcp_if_exclude",
    ),
}
