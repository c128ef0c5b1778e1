"""Variables of each transport's ranks by the facts of the policy, and those that are never set (interface.md 3.3)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.nccl import conf, derive
from railwright.fabric.policy import model

RAILS = tuple(model.Rail(name=f"rail{at}", device=f"mlx5_{at}") for at in range(4))
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
COMMON = [("NCCL_SOCKET_IFNAME", "=eth0"), ("GLOO_SOCKET_IFNAME", "eth0"), ("TP_SOCKET_IFNAME", "eth0")]
ALL_FACTS = model.Nccl(
    forbid_tcp_fallback=True,
    gid_index=3,
    address_range="fd00::/8",
    address_family="AF_INET6",
    traffic_class=96,
    fifo_traffic_class=84,
    service_level=2,
    rail_only=True,
    qps_per_connection=4,
    adaptive_routing=True,
    timeout=22,
    retry_count=7,
    gdr_level="SYS",
    merge_vfs=False,
    topology_file="/etc/topo.xml",
    debug="INFO",
)


def list_derived(transport, nccl=model.Nccl(), devices=DEVICES, primary="eth0", *, is_foreign=False):  # noqa: B008 - frozen
    fabric = model.Fabric(transport=model.Transport(transport), rails=RAILS, nccl=nccl)
    return [(v.name, v.value) for v in derive.derive(derive.Case(fabric, RAILS, devices, primary, is_foreign))]


def test_the_example_of_the_interface_gives_exactly_these_variables():
    example = model.Nccl(address_range="192.168.0.0/16", debug="WARN")
    assert list_derived("roce", example) == [
        *COMMON,
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
        ("NCCL_IB_ADDR_RANGE", "192.168.0.0/16"),
    ]


def test_all_facts_become_variables_in_this_order():
    assert list_derived("roce", ALL_FACTS) == [
        *COMMON,
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_NET", "IB"),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        ("NCCL_IB_ADDR_RANGE", "fd00::/8"),
        ("NCCL_IB_TC", "96"),
        ("NCCL_IB_FIFO_TC", "84"),
        ("NCCL_IB_SL", "2"),
        ("NCCL_CROSS_NIC", "0"),
        ("NCCL_IB_QPS_PER_CONNECTION", "4"),
        ("NCCL_IB_ADAPTIVE_ROUTING", "1"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_IB_RETRY_CNT", "7"),
        ("NCCL_NET_GDR_LEVEL", "SYS"),
        ("NCCL_IB_MERGE_VFS", "0"),
        ("NCCL_TOPO_FILE", "/etc/topo.xml"),
    ]


@pytest.mark.parametrize("transport", list(model.Transport))
def test_unknown_devices_are_not_listed(transport):
    listed = [value for name, value in list_derived(transport, devices=None) if name == "NCCL_IB_HCA"]
    assert listed == ["erdma"] * (transport is model.Transport.ERDMA)


def test_a_device_that_two_rails_share_is_named_once():
    assert ("NCCL_IB_HCA", "=mlx5_1,mlx5_0") in list_derived("roce", devices=("mlx5_1", "mlx5_0", "mlx5_1"))


@pytest.mark.parametrize("transport", list(model.Transport))
def test_on_the_hosts_network_no_interface_is_named(transport):
    assert not [name for name, _ in list_derived(transport, is_foreign=True) if name.endswith("_IFNAME")]


def test_the_primary_interface_is_the_policys():
    assert list_derived("roce", primary="ens3")[:3] == [
        ("NCCL_SOCKET_IFNAME", "=ens3"),
        ("GLOO_SOCKET_IFNAME", "ens3"),
        ("TP_SOCKET_IFNAME", "ens3"),
    ]


@pytest.mark.parametrize("transport", list(model.Transport))
def test_with_derive_false_nothing_is_derived(transport):
    assert list_derived(transport, model.Nccl(derive=False, debug="INFO", gid_index=3)) == []


# NCCL tuning that belongs to the user or the vendor's plugin, whatever the fabric
FORBIDDEN = re.compile(
    "NCCL_(ALGO|PROTO|BUFFSIZE|NTHREADS|COMM_ID|HOSTID|P2P_DISABLE|SHM_DISABLE|CUMEM_ENABLE|GRAPH_FILE"
    "|NET_FORCE_MERGE|IB_ROCE_VERSION_NUM|IB_PKEY|IB_SPLIT_DATA_ON_QPS|.*CHANNELS|.*CTAS)|RDMAV_.*|FI_.*"
)
NCCLS = st.builds(
    model.Nccl,
    forbid_tcp_fallback=st.booleans(),
    gid_index=st.none() | st.integers(-1, 255),
    address_range=st.sampled_from([None, "192.168.0.0/16"]),
    address_family=st.sampled_from([None, "AF_INET", "AF_INET6"]),
    traffic_class=st.none() | st.integers(-1, 255),
    fifo_traffic_class=st.none() | st.integers(-1, 255),
    service_level=st.none() | st.integers(-1, 15),
    rail_only=st.booleans(),
    qps_per_connection=st.none() | st.integers(1, 128),
    adaptive_routing=st.none() | st.booleans(),
    timeout=st.none() | st.integers(1, 31),
    retry_count=st.none() | st.integers(0, 7),
    gdr_level=st.sampled_from([None, "LOC", "PIX", "SYS"]),
    merge_vfs=st.none() | st.booleans(),
    topology_file=st.sampled_from([None, "/etc/topo.xml"]),
    debug=st.sampled_from([None, "WARN", "INFO"]),
)
FABRICS = st.builds(model.Fabric, transport=st.sampled_from(list(model.Transport)), nccl=NCCLS)
DEVICE_SETS = st.none() | st.lists(st.sampled_from(DEVICES), max_size=8).map(tuple)


@given(FABRICS, DEVICE_SETS, st.booleans())
def test_no_fabric_gives_a_variable_that_is_dangerous_to_set_blindly(fabric, devices, host_network):
    variables = derive.derive(derive.Case(fabric, (), devices, "eth0", host_network))
    names = [variable.name for variable in variables]
    nccl, transport = fabric.nccl, fabric.transport
    assert not [name for name in names if FORBIDDEN.fullmatch(name)]
    assert len(names) == len(set(names))
    assert ("NCCL_IB_GID_INDEX" in names) <= (nccl.gid_index is not None)
    assert ("NCCL_CROSS_NIC" in names) <= nccl.rail_only
    if transport is model.Transport.EFA:
        assert not [name for name in names if name.startswith("NCCL_IB_")]
    if transport is model.Transport.INFINIBAND:
        assert not {"NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_TC"} & set(names)
    assert ("NCCL_IB_DISABLE" in names) == (transport is model.Transport.TCP)
    settings = {variable.name: variable.value for variable in variables}
    assert not {"NCCL_NET", "NCCL_IB_DISABLE"} <= set(settings) or settings["NCCL_NET"] == "Socket"  # IB would fail


@given(FABRICS, DEVICE_SETS, st.booleans())
def test_every_variable_has_a_value_a_reason_and_a_source_and_fits_the_file(fabric, devices, host_network):
    for variable in derive.derive(derive.Case(fabric, (), devices, "eth0", host_network)):
        assert variable.value
        assert variable.value not in {"true", "false", "True", "False", "None"}  # NCCL reads true as 0
        assert variable.reason
        assert variable.reason.code.source
        assert conf.fits(variable.name, variable.value)


def test_a_launcher_gets_the_pins_of_mpirun_and_no_nccl():
    fabric = model.Fabric(transport=model.Transport.ROCE, rails=RAILS, nccl=ALL_FACTS)
    assert [(v.name, v.value) for v in derive.derive_launcher_settings(fabric, "eth0", is_foreign=False)] == [
        ("OMPI_MCA_oob_tcp_if_include", "eth0"),
        ("OMPI_MCA_btl_tcp_if_include", "eth0"),
        ("PRTE_MCA_prte_if_include", "eth0"),
    ]
    assert derive.derive_launcher_settings(fabric, "eth0", is_foreign=True) == ()
