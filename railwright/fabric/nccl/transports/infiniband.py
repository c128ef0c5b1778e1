"""Rows of native InfiniBand, without GID index, traffic class and addresses, which have no effect on it."""

from railwright.fabric.nccl import verbs

ROWS = (
    verbs.ONLY_IB,
    verbs.HCA,
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
