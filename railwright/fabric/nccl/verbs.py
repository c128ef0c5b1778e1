"""Rows that several verbs transports share; each transport's own file says which of them it has.

Owns one row a fact of the policy. Refuses to know transports.
"""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.model import Row

HCA = Row(
    "NCCL_IB_HCA",
    values.devices(),
    "exactly the devices of the rails: every other one on the node is storage or management",
    values.NCCL_GUIDE,
)
ONLY_IB = Row(
    "NCCL_NET",
    values.when("forbid_tcp_fallback", "IB"),
    "a fabric that does not work fails instead of crawling over TCP",
    values.NCCL_GUIDE,
)
GID_INDEX = Row("NCCL_IB_GID_INDEX", values.fact("gid_index"), "the site's fixed GID table index", values.NCCL_GUIDE)
ADDRESS_FAMILY = Row(
    "NCCL_IB_ADDR_FAMILY", values.fact("address_family"), "the family of the rails' addresses", values.NCCL_GUIDE
)
ADDRESS_RANGE = Row(
    "NCCL_IB_ADDR_RANGE",
    values.fact("address_range"),
    "tells the pod's addresses on the rails from the host's",
    values.NCCL_GUIDE,
)
TRAFFIC_CLASS = Row("NCCL_IB_TC", values.fact("traffic_class"), "the fabric's lossless class", values.NCCL_GUIDE)
FIFO_TRAFFIC_CLASS = Row(
    "NCCL_IB_FIFO_TC", values.fact("fifo_traffic_class"), "the fabric's class for control messages", values.NCCL_GUIDE
)
SERVICE_LEVEL = Row("NCCL_IB_SL", values.fact("service_level"), "the fabric's service level", values.NCCL_GUIDE)
CROSS_NIC = Row(
    "NCCL_CROSS_NIC",
    values.when("rail_only", "0"),
    "the rails of this fabric do not reach each other",
    values.NCCL_GUIDE,
)
QPS = Row(
    "NCCL_IB_QPS_PER_CONNECTION",
    values.fact("qps_per_connection"),
    "spreads flows over the paths of this fabric",
    values.NCCL_GUIDE,
)
ADAPTIVE_ROUTING = Row(
    "NCCL_IB_ADAPTIVE_ROUTING",
    values.fact("adaptive_routing"),
    "whether switches and NICs route adaptively",
    values.NCCL_GUIDE,
)
TIMEOUT = Row("NCCL_IB_TIMEOUT", values.fact("timeout"), "how long this fabric's route changes last", values.NCCL_GUIDE)
RETRY_COUNT = Row(
    "NCCL_IB_RETRY_CNT", values.fact("retry_count"), "tries before a link counts as dead", values.NCCL_GUIDE
)
GDR_LEVEL = Row(
    "NCCL_NET_GDR_LEVEL", values.fact("gdr_level"), "how far GPUDirect reaches on these nodes", values.NCCL_GUIDE
)
MERGE_VFS = Row(
    "NCCL_IB_MERGE_VFS", values.fact("merge_vfs"), "whether functions of one card count as one NIC", values.NCCL_GUIDE
)
TOPOLOGY = Row("NCCL_TOPO_FILE", values.fact("topology_file"), "these nodes hide their PCI tree", values.NCCL_GUIDE)
