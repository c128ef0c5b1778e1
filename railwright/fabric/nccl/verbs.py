"""Rows that several verbs transports share, one for each key of the policy's `nccl` section.

The file of a transport in `transports/` lists the rows that apply to it.
"""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.derivation_types import Row

HCA = Row(
    "NCCL_IB_HCA",
    values.exact_devices(),
    "exactly the rails' devices: the node's other devices are for storage or management",
    values.NCCL_GUIDE,
)
ONLY_IB = Row(
    "NCCL_NET",
    values.if_enabled("forbid_tcp_fallback", "IB"),
    "a broken fabric fails instead of running slowly over TCP",
    values.NCCL_GUIDE,
)
GID_INDEX = Row(
    "NCCL_IB_GID_INDEX", values.policy_value("gid_index"), "the site's fixed GID table index", values.NCCL_GUIDE
)
ADDRESS_FAMILY = Row(
    "NCCL_IB_ADDR_FAMILY",
    values.policy_value("address_family"),
    "the family of the rails' addresses",
    values.NCCL_GUIDE,
)
ADDRESS_RANGE = Row(
    "NCCL_IB_ADDR_RANGE",
    values.policy_value("address_range"),
    "selects the pod's addresses on the rails, not the host's",
    values.NCCL_GUIDE,
)
TRAFFIC_CLASS = Row(
    "NCCL_IB_TC", values.policy_value("traffic_class"), "the fabric's lossless class", values.NCCL_GUIDE
)
FIFO_TRAFFIC_CLASS = Row(
    "NCCL_IB_FIFO_TC",
    values.policy_value("fifo_traffic_class"),
    "the fabric's class for control messages",
    values.NCCL_GUIDE,
)
SERVICE_LEVEL = Row("NCCL_IB_SL", values.policy_value("service_level"), "the fabric's service level", values.NCCL_GUIDE)
CROSS_NIC = Row(
    "NCCL_CROSS_NIC",
    values.if_enabled("rail_only", "0"),
    "the rails of this fabric do not reach each other",
    values.NCCL_GUIDE,
)
QPS = Row(
    "NCCL_IB_QPS_PER_CONNECTION",
    values.policy_value("qps_per_connection"),
    "spreads flows over the paths of this fabric",
    values.NCCL_GUIDE,
)
ADAPTIVE_ROUTING = Row(
    "NCCL_IB_ADAPTIVE_ROUTING",
    values.policy_value("adaptive_routing"),
    "whether switches and NICs route adaptively",
    values.NCCL_GUIDE,
)
TIMEOUT = Row(
    "NCCL_IB_TIMEOUT",
    values.policy_value("timeout"),
    "longer than a route change of this fabric takes",
    values.NCCL_GUIDE,
)
RETRY_COUNT = Row(
    "NCCL_IB_RETRY_CNT",
    values.policy_value("retry_count"),
    "retries before NCCL considers a link broken",
    values.NCCL_GUIDE,
)
GDR_LEVEL = Row(
    "NCCL_NET_GDR_LEVEL",
    values.policy_value("gdr_level"),
    "how far GPUDirect reaches on these nodes",
    values.NCCL_GUIDE,
)
MERGE_VFS = Row(
    "NCCL_IB_MERGE_VFS",
    values.policy_value("merge_vfs"),
    "whether functions of one card count as one NIC",
    values.NCCL_GUIDE,
)
TOPOLOGY = Row(
    "NCCL_TOPO_FILE", values.policy_value("topology_file"), "these nodes hide their PCI tree", values.NCCL_GUIDE
)
