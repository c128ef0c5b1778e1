"""Rows of RoCEv2 rails, with macvlan or SR-IOV."""

from railwright.fabric.nccl import verbs

ROWS = (
    verbs.ONLY_IB,
    verbs.HCA,
    verbs.GID_INDEX,
    verbs.ADDRESS_FAMILY,
    verbs.ADDRESS_RANGE,
    verbs.TRAFFIC_CLASS,
    verbs.FIFO_TRAFFIC_CLASS,
    verbs.SERVICE_LEVEL,
    verbs.CROSS_NIC,
    verbs.QPS,
    verbs.ADAPTIVE_ROUTING,
    verbs.TIMEOUT,
    verbs.RETRY_COUNT,
    verbs.GDR_LEVEL,
    verbs.MERGE_VFS,
    verbs.TOPOLOGY,
)
