"""AWS EFA: the plugin sets its own defaults, so nearly nothing is said; never NCCL_IB_*."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.model import Row

ROWS = (
    Row(
        "NCCL_NET",
        values.when("forbid_tcp_fallback", "AWS Libfabric"),
        "an image without the EFA plugin fails instead of crawling over TCP",
        "aws-ofi-nccl doc/efa-env-var.md",
    ),
    verbs.TOPOLOGY,
)
