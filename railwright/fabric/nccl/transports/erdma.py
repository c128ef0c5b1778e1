"""Rows of Alibaba eRDMA. The vendor documents no traffic class, service level or adaptive routing."""

from railwright.fabric.nccl import values, verbs
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.reasons.codes import VariableCode

ROWS = (
    verbs.ONLY_IB,
    Row(
        "NCCL_NET_PLUGIN",
        values.return_constant("none"),
        VariableCode.NETWORK_PLUGIN_DISABLED,
    ),
    Row(
        "NCCL_IB_HCA",
        values.return_exact_devices(fallback="erdma"),
        VariableCode.ERDMA_DEVICES,
    ),
    verbs.GID_INDEX,
    verbs.ADDRESS_FAMILY,
    verbs.ADDRESS_RANGE,
    verbs.CROSS_NIC,
    verbs.QPS,
    verbs.TIMEOUT,
    verbs.RETRY_COUNT,
    verbs.GDR_LEVEL,
    verbs.TOPOLOGY,
)
