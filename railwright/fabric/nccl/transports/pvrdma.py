"""Rows of VMware PVRDMA. The vendor documents no NCCL settings; these follow from the limits of the driver."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.reasons.codes import VariableCode

ROWS = (
    verbs.ONLY_IB,
    verbs.HCA,
    verbs.GID_INDEX,
    verbs.ADDRESS_FAMILY,
    verbs.ADDRESS_RANGE,
    Row(
        "NCCL_IB_PCI_RELAXED_ORDERING",
        values.return_constant("0"),
        VariableCode.RELAXED_ORDERING_ABSENT,
    ),
    verbs.TIMEOUT,
    verbs.RETRY_COUNT,
    Row(
        "NCCL_NET_GDR_LEVEL",
        values.return_policy_value("gdr_level", default="LOC"),
        VariableCode.GPU_DIRECT_ABSENT,
    ),
    verbs.TOPOLOGY,
)
