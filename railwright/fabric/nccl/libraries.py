"""Libraries other than NCCL whose variables are derived: NVSHMEM, UCX, NIXL.

A rank started by torchrun loads none of these libraries. A library's variables are therefore derived only if the pod or
the policy sets one of that library's variables; those of NVSHMEM also if the pod sets PyTorch's TORCH_SYMMMEM. The
device variables of UCX are derived only if it carries data over the rails: a variable of NIXL is set, which moves the
KV cache of an inference server over UCX, or UCX_TLS names an RDMA transport. UCX_TLS itself is never derived: `tcp` is
right where UCX carries control traffic alone, and wrong where it carries data, and which holds is not known.
"""

from collections.abc import Iterable, Mapping

_LIBRARIES: Mapping[str, str] = {  # library by the first word of a variable's name
    "NVSHMEM": "NVSHMEM",
    "UCX": "UCX",
    "VLLM_NIXL": "UCX",  # settings of vLLM's NIXL connector (vllm-project/vllm, vllm/envs.py)
    "NIXL": "UCX",
}
# PyTorch's backend of symmetric memory. It copies NCCL_IB_HCA into NVSHMEM_HCA_LIST unless that is set (pytorch/pytorch
# pull request 170891), with its `=`, which NVSHMEM takes for a part of the first name.
_SYMMETRIC_MEMORY = "TORCH_SYMMMEM"
_NIXL_PREFIXES = ("VLLM_NIXL_", "NIXL_")
RDMA_OF_UCX = "RDMA of UCX"  # data of UCX over the rails: by NIXL, or by transports that UCX_TLS names
UCX_DEVICE_VARIABLES = frozenset({"UCX_NET_DEVICES", "UCX_IB_GID_INDEX"})  # with them, UCX needs an RDMA transport
OPEN_MPI = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")  # prefixes of its variables, none of which is derived
UCX_TRANSPORTS = "UCX_TLS"
# Names of transports over verbs, and their aliases (openucx/ucx, src/ucp/core/ucp_context.c, ucp_tl_aliases; `all`).
_RDMA_TRANSPORTS = frozenset(
    {
        *("all", "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5"),
        *("dc", "dc_x", "dc_mlx5", "srd", "gga", "gga_mlx5"),
    }
)
_PREFIXES = tuple((f"\n{word}_", library) for word, library in _LIBRARIES.items())

# A variable is left out if the user has set one of these to another value. NVSHMEM reads NVSHMEM_HCA_LIST only with the
# mapping on, and an explicit mapping or a prefix replaces the list.
CONFLICTING_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "NVSHMEM_HCA_LIST": ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "NVSHMEM_HCA_PE_MAPPING", "NVSHMEM_HCA_PREFIX"),
    "NVSHMEM_ENABLE_NIC_PE_MAPPING": ("NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING", "NVSHMEM_HCA_PREFIX"),
    "NVSHMEM_IB_ADDR_FAMILY": ("NVSHMEM_IB_GID_INDEX",),
    "NVSHMEM_IB_ADDR_RANGE": ("NVSHMEM_IB_GID_INDEX",),
    "NVSHMEM_IB_GID_INDEX": ("NVSHMEM_IB_ADDR_RANGE",),
}


def may_use_rdma(transports: str) -> bool:
    """True unless the value of UCX_TLS excludes every RDMA transport.

    UCX reads `^` before a list as "all but these", and a backslash before a name as "this transport only, without those
    it needs beside it" (openucx/ucx, src/ucp/core/ucp_context.c).
    """
    named = {name.strip().lstrip("\\").partition(":")[0] for name in transports.lower().lstrip("^").split(",")}
    if transports.startswith("^"):
        return not ("all" in named or "ib" in named or named >= {"rc", "ud", "dc"})
    return not named.isdisjoint(_RDMA_TRANSPORTS)


def detect_libraries(names: Iterable[str]) -> frozenset[str]:
    """Return the libraries to which at least one of the variables `names` belongs."""
    text = "\n".join(("", *names, ""))  # one search per library is faster than a look-up per name
    libraries = [library for prefix, library in _PREFIXES if prefix in text]
    if f"\n{_SYMMETRIC_MEMORY}\n" in text:
        libraries.append("NVSHMEM")
    if any(f"\n{prefix}" in text for prefix in _NIXL_PREFIXES):
        libraries.append(RDMA_OF_UCX)
    return frozenset(libraries)


def get_library(name: str) -> str:
    """Return the library for which a variable is derived. Raises KeyError for a variable that is never derived."""
    return RDMA_OF_UCX if name in UCX_DEVICE_VARIABLES else _LIBRARIES[name.partition("_")[0]]
