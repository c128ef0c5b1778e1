"""Rows of VMware PVRDMA. The vendor documents no NCCL settings; these follow from the limits of the driver."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.derivation_types import Row

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
        values.policy_value("gdr_level", default="LOC"),
        "the driver supports neither peer memory nor dma-buf, so GPUDirect would fail in the job",
        "rdma-core providers/vmw_pvrdma",
    ),
    verbs.TOPOLOGY,
)
