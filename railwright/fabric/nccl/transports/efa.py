"""Rows of AWS EFA. The EFA plugin sets its own defaults and does not read NCCL_IB_* variables."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.reasons.codes import VariableCode

ROWS = (
    Row(
        "NCCL_NET",
        values.return_if_enabled("forbid_tcp_fallback", "AWS Libfabric"),
        VariableCode.EFA_PLUGIN_REQUIRED,
    ),
    verbs.TOPOLOGY,
)
