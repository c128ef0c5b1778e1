"""Rows that several verbs transports share, one for each key of the policy's `nccl` section.

The file of a transport in `transports/` lists the rows that apply to it.
"""

from railwright.fabric.nccl import values
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.reasons.codes import VariableCode

HCA = Row(
    "NCCL_IB_HCA",
    values.return_exact_devices(),
    VariableCode.RAIL_DEVICES,
)
ONLY_IB = Row(
    "NCCL_NET",
    values.return_if_enabled("forbid_tcp_fallback", "IB"),
    VariableCode.TCP_FORBIDDEN,
)
GID_INDEX = Row("NCCL_IB_GID_INDEX", values.return_policy_value("gid_index"), VariableCode.GID_INDEX)
ADDRESS_FAMILY = Row(
    "NCCL_IB_ADDR_FAMILY",
    values.return_policy_value("address_family"),
    VariableCode.ADDRESS_FAMILY,
)
ADDRESS_RANGE = Row(
    "NCCL_IB_ADDR_RANGE",
    values.return_address_range,
    VariableCode.ADDRESS_RANGE,
)
TRAFFIC_CLASS = Row("NCCL_IB_TC", values.return_policy_value("traffic_class"), VariableCode.TRAFFIC_CLASS)
FIFO_TRAFFIC_CLASS = Row(
    "NCCL_IB_FIFO_TC",
    values.return_policy_value("fifo_traffic_class"),
    VariableCode.CONTROL_TRAFFIC_CLASS,
)
SERVICE_LEVEL = Row("NCCL_IB_SL", values.return_policy_value("service_level"), VariableCode.SERVICE_LEVEL)
CROSS_NIC = Row(
    "NCCL_CROSS_NIC",
    values.return_if_enabled("rail_only", "0"),
    VariableCode.RAILS_ISOLATED,
)
QPS = Row(
    "NCCL_IB_QPS_PER_CONNECTION",
    values.return_policy_value("qps_per_connection"),
    VariableCode.QUEUE_PAIRS,
)
ADAPTIVE_ROUTING = Row(
    "NCCL_IB_ADAPTIVE_ROUTING",
    values.return_policy_value("adaptive_routing"),
    VariableCode.ADAPTIVE_ROUTING,
)
TIMEOUT = Row(
    "NCCL_IB_TIMEOUT",
    values.return_policy_value("timeout"),
    VariableCode.TIMEOUT,
)
RETRY_COUNT = Row(
    "NCCL_IB_RETRY_CNT",
    values.return_policy_value("retry_count"),
    VariableCode.RETRY_COUNT,
)
GDR_LEVEL = Row(
    "NCCL_NET_GDR_LEVEL",
    values.return_policy_value("gdr_level"),
    VariableCode.GPU_DIRECT_REACH,
)
MERGE_VFS = Row(
    "NCCL_IB_MERGE_VFS",
    values.return_policy_value("merge_vfs"),
    VariableCode.FUNCTIONS_MERGED,
)
TOPOLOGY = Row("NCCL_TOPO_FILE", values.return_policy_value("topology_file"), VariableCode.TOPOLOGY_FILE)
