"""TCP only: NCCL held to sockets, for comparison runs."""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.model import Row

ROWS = (
    Row("NCCL_NET", values.constant("Socket"), "the only switch that plugins respect too", values.NCCL_GUIDE),
    Row("NCCL_NET_PLUGIN", values.constant("none"), "no plugin is probed", values.NCCL_GUIDE),
    Row("NCCL_IB_DISABLE", values.constant("1"), "for images too old for the two others", values.NCCL_GUIDE),
)
