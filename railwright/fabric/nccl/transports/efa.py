"""Rows of AWS EFA. The EFA plugin sets its own defaults and does not read NCCL_IB_* variables."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.derivation_types import Row

ROWS = (
    Row(
        "NCCL_NET",
        values.if_enabled("forbid_tcp_fallback", "AWS Libfabric"),
        "an image without the EFA plugin fails instead of running slowly over TCP",
        "aws-ofi-nccl doc/efa-env-var.md",
    ),
    verbs.TOPOLOGY,
)
