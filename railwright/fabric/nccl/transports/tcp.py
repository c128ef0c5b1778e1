"""Rows that restrict NCCL to TCP, for comparison runs."""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.reasons.codes import VariableCode

ROWS = (
    Row("NCCL_NET", values.return_constant("Socket"), VariableCode.SOCKETS_ONLY),
    Row("NCCL_NET_PLUGIN", values.return_constant("none"), VariableCode.NO_NETWORK_PLUGIN),
    Row("NCCL_IB_DISABLE", values.return_constant("1"), VariableCode.VERBS_DISABLED),
)
