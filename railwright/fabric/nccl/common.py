"""The block every fabric has: control traffic stays on the pod's primary interface.

Owns the interface pins of ranks, and those of mpirun for launchers. What other libraries need is `libraries`'.
"""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.model import Row

ROWS = (
    Row(
        "NCCL_SOCKET_IFNAME",
        values.in_pod(lambda name: f"={name}"),
        "keeps bootstrap and the RDMA handshake off the rails",
        values.NCCL_GUIDE,
    ),
    Row(
        "GLOO_SOCKET_IFNAME",
        values.in_pod(str),
        "keeps PyTorch's CPU traffic off the rails; Gloo takes a plain name only",
        "PyTorch torch.distributed, common environment variables",
    ),
    Row(
        "TP_SOCKET_IFNAME",
        values.in_pod(str),
        "keeps PyTorch's RPC off the rails; TensorPipe takes a plain name only",
        "PyTorch TensorPipe agent, TP_SOCKET_IFNAME",
    ),
    Row("NCCL_DEBUG", values.fact("debug"), "how much NCCL says, as the policy asks", values.NCCL_GUIDE),
)

LAUNCHER_ROWS = (
    Row(
        "OMPI_MCA_oob_tcp_if_include",
        values.in_pod(str),
        "keeps Open MPI 4's own messages off the rails",
        "Open MPI 4 FAQ, TCP: which interfaces",
    ),
    Row(
        "OMPI_MCA_btl_tcp_if_include",
        values.in_pod(str),
        "keeps Open MPI's TCP transport off the rails",
        "Open MPI documentation, TCP: which interfaces",
    ),
    Row(
        "PRTE_MCA_prte_if_include",
        values.in_pod(str),
        "keeps Open MPI 5's runtime off the rails",
        "PRRTE documentation, prte_if_include",
    ),
)

# Any of these set by the user forbids the pin: include and exclude lists are mutually exclusive. Open MPI 5's mpirun
# takes OMPI_MCA_oob_* as PRTE_MCA_oob_* (PRRTE, schizo_ompi.c, check_prte_overlap), so those two meet as well.
TWINS = {
    "OMPI_MCA_oob_tcp_if_include": (
        "OMPI_MCA_oob_tcp_if_exclude",
        "PRTE_MCA_prte_if_exclude",
        "PRTE_MCA_oob_tcp_if_exclude",
    ),
    "OMPI_MCA_btl_tcp_if_include": ("OMPI_MCA_btl_tcp_if_exclude",),
    "PRTE_MCA_prte_if_include": (
        "PRTE_MCA_prte_if_exclude",
        "PRTE_MCA_oob_tcp_if_include",  # the old name of the same parameter
        "PRTE_MCA_oob_tcp_if_exclude",
        "OMPI_MCA_oob_tcp_if_include",  # ours, with the same value, is no hindrance
        "OMPI_MCA_oob_tcp_if_exclude",
    ),
}
