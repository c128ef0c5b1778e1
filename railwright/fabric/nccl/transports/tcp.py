"""Rows that restrict NCCL to TCP, for comparison runs."""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.derivation_types import Row

ROWS = (
    Row("NCCL_NET", values.constant("Socket"), "also restricts network plugins to sockets", values.NCCL_GUIDE),
    Row("NCCL_NET_PLUGIN", values.constant("none"), "NCCL loads no network plugin", values.NCCL_GUIDE),
    Row("NCCL_IB_DISABLE", values.constant("1"), "for images with an NCCL too old for the others", values.NCCL_GUIDE),
)
