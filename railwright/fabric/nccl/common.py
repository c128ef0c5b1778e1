"""Variables of every fabric: they keep control traffic on the pod's primary interface.

`ROWS` are for ranks, `LAUNCHER_ROWS` for mpirun on a launcher. Variables of other libraries are in `libraries`.
"""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.derivation_types import Row

ROWS = (
    Row(
        "NCCL_SOCKET_IFNAME",
        values.primary_interface(lambda name: f"={name}"),
        "keeps bootstrap and the RDMA handshake off the rails",
        values.NCCL_GUIDE,
    ),
    Row(
        "GLOO_SOCKET_IFNAME",
        values.primary_interface(str),
        "keeps PyTorch's CPU traffic off the rails; Gloo takes a plain name only",
        "PyTorch torch.distributed, common environment variables",
    ),
    Row(
        "TP_SOCKET_IFNAME",
        values.primary_interface(str),
        "keeps PyTorch's RPC off the rails; TensorPipe takes a plain name only",
        "PyTorch TensorPipe agent, TP_SOCKET_IFNAME",
    ),
    Row("NCCL_DEBUG", values.policy_value("debug"), "log level set in the policy", values.NCCL_GUIDE),
)

LAUNCHER_ROWS = (
    Row(
        "OMPI_MCA_oob_tcp_if_include",
        values.primary_interface(str),
        "keeps Open MPI 4's control messages off the rails",
        "Open MPI 4 FAQ, TCP: which interfaces",
    ),
    Row(
        "OMPI_MCA_btl_tcp_if_include",
        values.primary_interface(str),
        "keeps Open MPI's TCP transport off the rails",
        "Open MPI documentation, TCP: which interfaces",
    ),
    Row(
        "PRTE_MCA_prte_if_include",
        values.primary_interface(str),
        "keeps Open MPI 5's runtime off the rails",
        "PRRTE documentation, prte_if_include",
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
