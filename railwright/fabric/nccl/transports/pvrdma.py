"""VMware PVRDMA: no vendor settings exist; from the driver's limits."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.model import Row

ROWS = (
    verbs.ONLY_IB,
    verbs.HCA,
    verbs.GID_INDEX,
    verbs.ADDRESS_FAMILY,
    verbs.ADDRESS_RANGE,
    Row(
        "NCCL_IB_PCI_RELAXED_ORDERING",
        values.constant("0"),
        "the paravirtual device does not offer relaxed ordering",
        "rdma-core providers/vmw_pvrdma",
    ),
    verbs.TIMEOUT,
    verbs.RETRY_COUNT,
    Row(
        "NCCL_NET_GDR_LEVEL",
        values.fact("gdr_level", default="LOC"),
        "the provider has neither peer memory nor dma-buf: GPUDirect would fail late",
        "rdma-core providers/vmw_pvrdma",
    ),
    verbs.TOPOLOGY,
)
