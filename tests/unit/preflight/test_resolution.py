"""The rails on each kind of node are found in the container, and written in each library's format."""

import pytest
import sysfs_trees
from preflights import build_rail_options, read_conf, read_env, run

ROCE = "--transport=roce"
INFINIBAND = "--transport=infiniband"


def find(result, key: str) -> list:
    return [rail[key] for rail in result.found["rails"]]


def test_shared_mlx5_devices_are_found_by_the_interfaces_that_the_pod_has(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    result = run(tmp_path, ROCE, *build_rail_options(4))
    assert (result.code, read_env(result)) == (
        0,
        {
            "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
            "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
            "NVSHMEM_HCA_LIST": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
            "NVSHMEM_ENABLE_NIC_PE_MAPPING": "1",
            "MORI_RDMA_DEVICES": "mlx5_0,mlx5_1,mlx5_2,mlx5_3",
            "NCCL_IB_GID_INDEX": "7",
            "MC_GID_INDEX": "7",
            "UCX_IB_GID_INDEX": "7",
            "NVSHMEM_IB_GID_INDEX": "7",
            "UCCL_IB_GID_INDEX": "7",
            "MORI_IB_GID_INDEX": "7",
        },
    )
    assert read_conf(result.files["nccl.conf"]) == {
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        "NCCL_IB_GID_INDEX": "7",
    }
    assert read_conf(result.files["ucx.conf"]) == {
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
        "UCX_IB_GID_INDEX": "7",
    }
    assert result.line == "4 rails ready: " + ", ".join(
        f"rail{k} mlx5_{k} 192.168.{k + 2}.7 GID 7 mtu 9000" for k in range(4)
    )


def test_rails_json_describes_the_found_rails(tmp_path):
    sysfs_trees.build_roce(tmp_path, rails=2)
    options = ("--gid-index=7", "--address-range=192.168.0.0/16", "--mtu=4200", "--isolated")
    rails = build_rail_options(2, "rail{0},resource=nvidia.com/mlx5_{0},interface=net{1}")
    found = run(tmp_path, ROCE, *rails, *options, environment={"NODE_NAME": "node-a"}).found
    assert found | {"variables": {}} == {
        "version": 1,
        "node": "node-a",
        "ready": True,
        "rails": [
            {
                "name": f"rail{k}",
                "device": f"mlx5_{k}",
                "basis": "interface",
                "port": 1,
                "state": "ACTIVE",
                "rate": "400 Gb/sec (4X NDR)",
                "gidIndex": 7,
                "address": f"192.168.{k + 2}.7",
                "interface": f"net{k + 1}",
                "mtu": 9000,
                "pci": f"0000:1{k}:00.0",
            }
            for k in range(2)
        ],
        "variables": {},
        "problems": [],
    }
    assert found["variables"]["MC_ENABLE_DEST_DEVICE_AFFINITY"] == "1"
    assert found["variables"]["NVSHMEM_IB_ADDR_RANGE"] == "192.168.0.0/16"


def test_rails_with_different_gid_indexes_get_a_warning_and_no_index(tmp_path):
    sysfs_trees.build_roce(tmp_path, rails=2, offsets=(0, 2))
    result = run(tmp_path, ROCE, *build_rail_options(2))
    assert result.code == 0
    assert find(result, "gidIndex") == [7, 9]
    assert not [name for name in read_env(result) if name.endswith("GID_INDEX")]
    assert "2 rails ready" in result.line
    assert "warning: GID indexes: differ (rail0 7, rail1 9), so none is written: set `nccl.addressRange`" in result.line
    result = run(tmp_path, ROCE, *build_rail_options(2), "--address-range=192.168.0.0/16")
    assert (find(result, "gidIndex"), "warning" in result.line) == ([7, 9], False)


def test_a_virtual_function_in_the_pod_is_found_by_its_pci_function(tmp_path):
    """Mode exclusive: the namespace has only the moved device, and the table only the pod's own entries."""
    node = sysfs_trees.Node(tmp_path)
    for rail, name in enumerate(("mlx5_65", "mlx5_9")):
        function = sysfs_trees.name_function(rail, function=2)
        gids = sysfs_trees.list_gids(("fe80::3", f"net{rail + 1}"), (f"192.168.{rail + 2}.7", f"net{rail + 1}"))
        node.add_device(name, gids, pci=function)
        node.add_interface(f"net{rail + 1}", f"192.168.{rail + 2}.7/24", pci=f"/sys/devices/{function}")
    result = run(tmp_path, ROCE, *build_rail_options(2))
    assert (result.code, find(result, "device"), find(result, "gidIndex")) == (0, ["mlx5_65", "mlx5_9"], [3, 3])


@pytest.mark.parametrize(
    ("interface", "device", "index"),
    [("net1", "mlx5_bond_0", 7), ("net1.100", "mlx5_bond_0", 9)],
    ids=["macvlan or ipvlan on a bond", "a VLAN in the pod"],
)
def test_interfaces_above_a_bond_are_found_by_their_gid(tmp_path, interface, device, index):
    node = sysfs_trees.Node(tmp_path)
    node.add_interface("net1", "10.8.1.40/24")
    node.add_interface("net1.100", "10.9.1.40/24")
    others = [("fe80::1", "bond0"), ("10.8.1.11", "bond0"), ("10.8.1.12", "bond0.7")]
    gids = sysfs_trees.list_gids(*others, ("10.8.1.40", "net1"), ("10.9.1.40", "net1.100"))
    node.add_device("mlx5_bond_0", gids, pci=sysfs_trees.name_function(0))
    result = run(tmp_path, ROCE, f"--rail=rail0,interface={interface}")
    assert (find(result, "device"), find(result, "gidIndex")) == ([device], [index])


def build_ipv6(root, *, both: bool):
    """Return a node whose rails have IPv6 addresses, and IPv4 addresses too if `both`."""
    node = sysfs_trees.Node(root)
    for rail in range(2):
        addresses = [f"fd00:{rail}::7", *([f"192.168.{rail + 2}.7"] if both else [])]
        gids = sysfs_trees.list_gids(
            ("fe80::1", f"net{rail + 1}"), *((address, f"net{rail + 1}") for address in addresses)
        )
        node.add_interface(f"net{rail + 1}", *(f"{address}/24" for address in addresses))
        node.add_device(f"mlx5_{rail}", gids, pci=sysfs_trees.name_function(rail))


@pytest.mark.parametrize(
    ("both", "options", "environment", "index"),
    [
        (False, [], {}, 3),
        (True, [], {}, 5),  # IPv4 is NCCL's default
        (True, ["--address-range=fd00::/8"], {}, 3),
        (True, [], {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, 3),
    ],
)
def test_ipv6_is_used_only_if_stated_or_if_the_rails_have_no_ipv4(tmp_path, both, options, environment, index):
    build_ipv6(tmp_path, both=both)
    result = run(tmp_path, ROCE, *build_rail_options(2), *options, environment=environment)
    assert (result.code, find(result, "gidIndex")) == (0, [index, index])
    names = {name for name in result.found["variables"] if name.endswith("ADDR_FAMILY")}
    assert names == ({"NCCL_IB_ADDR_FAMILY", "NVSHMEM_IB_ADDR_FAMILY"} if index == 3 else set())


def test_infiniband_functions_are_found_by_their_interfaces(tmp_path):
    sysfs_trees.build_infiniband(tmp_path)
    result = run(tmp_path, INFINIBAND, *build_rail_options(8), "--mtu=4000")
    devices = [f"mlx5_{9 * rail + 2}" for rail in range(8)]
    assert result.code == 0
    assert read_env(result) == {
        "NCCL_IB_HCA": f"={','.join(devices)}",
        "UCX_NET_DEVICES": ",".join(f"{device}:1" for device in devices),
        "NVSHMEM_HCA_LIST": ",".join(f"{device}:1" for device in devices),
        "NVSHMEM_ENABLE_NIC_PE_MAPPING": "1",
        "MORI_RDMA_DEVICES": ",".join(devices),
    }
    assert "rail7 mlx5_65 10.17.0.5 mtu 4092" in result.line


def test_infiniband_functions_without_interfaces_are_taken_from_the_container_in_natural_order(tmp_path):
    sysfs_trees.build_infiniband(tmp_path, interfaces=False)
    result = run(tmp_path, INFINIBAND, *build_rail_options(8, "rail{0},resource=nvidia.com/ib"))
    assert (result.code, find(result, "device")) == (0, [f"mlx5_{9 * rail + 2}" for rail in range(8)])
    assert set(find(result, "basis")) == {"order"}
    assert "rail0 mlx5_2 400 Gb/sec (4X NDR)" in result.line


def test_virtual_functions_are_found_by_the_device_plugins_environment_variable(tmp_path):
    sysfs_trees.build_infiniband(tmp_path, rails=3, interfaces=False)
    environment = {"PCIDEVICE_OPENSHIFT_IO_IB_1": "0000:12:00.1,0000:10:00.1", "PCIDEVICE_X_Y_B": "0000:11:00.1"}
    rails = [
        f"--rail=rail{k},resource={name}" for k, name in enumerate(("openshift.io/ib-1", "openshift.io/ib-1", "x.y/b"))
    ]
    result = run(tmp_path, INFINIBAND, *rails, environment=environment)
    assert (find(result, "device"), set(find(result, "basis"))) == (["mlx5_20", "mlx5_2", "mlx5_11"], {"resource"})


def test_a_rail_without_other_users_of_its_resource_gets_all_its_virtual_functions(tmp_path):
    sysfs_trees.build_infiniband(tmp_path, rails=4, interfaces=False)
    environment = {"PCIDEVICE_X_Y_A": "0000:10:00.1,0000:11:00.1", "PCIDEVICE_X_Y_B": "0000:12:00.1,0000:13:00.1"}
    rails = [f"--rail=rail{k},resource=x.y/{name}" for k, name in enumerate("ab")]
    result = run(tmp_path, INFINIBAND, *rails, environment=environment)
    assert find(result, "name") == ["rail0", "rail0", "rail1", "rail1"]
    assert read_env(result) == {
        "NCCL_IB_HCA": "=mlx5_2,mlx5_11,mlx5_20,mlx5_29",
        "UCX_NET_DEVICES": "mlx5_2:1,mlx5_11:1,mlx5_20:1,mlx5_29:1",
        "NVSHMEM_HCA_LIST": "mlx5_2:1,mlx5_11:1,mlx5_20:1,mlx5_29:1",
        "NVSHMEM_ENABLE_NIC_PE_MAPPING": "1",
        "MORI_RDMA_DEVICES": "mlx5_2,mlx5_11,mlx5_20,mlx5_29",
    }
    assert result.line.startswith("2 rails ready: rail0 mlx5_2 400 Gb/sec (4X NDR), rail0 mlx5_11 ")
    interfaces = build_rail_options(2, "rail{0},resource=x.y/r{0},interface=net{1}")
    environment = {f"PCIDEVICE_X_Y_R{k}": f"0000:1{k}:00.1,0000:1{k + 2}:00.1" for k in range(2)}
    (tmp_path / "second").mkdir()
    sysfs_trees.build_infiniband(tmp_path / "second", rails=4)
    result = run(tmp_path / "second", INFINIBAND, *interfaces, environment=environment)
    assert (result.code, find(result, "device")) == (0, ["mlx5_2", "mlx5_20", "mlx5_11", "mlx5_29"])
    environment = {"PCIDEVICE_X_Y_A": ",".join(f"0000:1{k}:00.1" for k in range(4))}
    result = run(tmp_path, INFINIBAND, *build_rail_options(2, "rail{0},resource=x.y/a"), environment=environment)
    assert sorted(find(result, "device")) == ["mlx5_11", "mlx5_2", "mlx5_20", "mlx5_29"]


def test_devices_that_only_one_container_has_are_not_listed_for_the_others(tmp_path):
    sysfs_trees.build_infiniband(tmp_path, rails=2, interfaces=False)
    environment = {"PCIDEVICE_X_Y_A": "0000:10:00.1"}
    options = (INFINIBAND, "--rail=rail0,resource=x.y/a")
    result = run(tmp_path, *options, "--several-containers", environment=environment)
    assert (result.code, find(result, "device"), read_env(result)) == (0, ["mlx5_2"], {})
    assert (result.files["nccl.conf"], result.files["ucx.conf"]) == ("", "")
    assert "rail0 mlx5_2: is in this container only, but other containers request such devices too: " in result.line
    assert read_env(run(tmp_path, *options, environment=environment))["NCCL_IB_HCA"] == "=mlx5_2"
    shared = run(tmp_path, *options, "--several-containers")  # a plugin that shares devices sets no such variable
    assert read_env(shared)["NCCL_IB_HCA"] == "=mlx5_2"


def test_ready_infiniband_devices_are_preferred_among_shared_ones(tmp_path):
    """A privileged container has every device: a storage NIC has another link layer, and one port has no link."""
    node = sysfs_trees.build_infiniband(tmp_path, rails=3, interfaces=False)
    node.add_device("mlx5_1", pci=sysfs_trees.name_function(5))
    node.add_device("mlx5_3", pci=sysfs_trees.name_function(6), link_layer="InfiniBand", state="1: DOWN")
    result = run(tmp_path, INFINIBAND, *build_rail_options(2, "rail{0}"))
    assert (result.code, find(result, "device")) == (0, ["mlx5_2", "mlx5_11"])
    assert "chosen by the order of device names alone, although these are unused: mlx5_20" in result.line


def test_on_the_host_network_rails_are_the_roce_devices_with_a_gid_of_the_node(tmp_path):
    node = sysfs_trees.Node(tmp_path)
    for rail in range(3):
        node.add_interface(
            f"ens{rail}", f"192.168.{rail + 2}.101/24", pci=f"/sys/devices/{sysfs_trees.name_function(rail)}"
        )
        gids = sysfs_trees.list_gids(("fe80::1", f"ens{rail}"), (f"192.168.{rail + 2}.101", f"ens{rail}"))
        node.add_device(f"mlx5_{rail}", gids if rail else gids[:2], pci=sysfs_trees.name_function(rail))
    result = run(tmp_path, ROCE, *build_rail_options(2, "rail{0}"))
    assert (find(result, "device"), find(result, "gidIndex")) == (["mlx5_1", "mlx5_2"], [3, 3])
    assert find(result, "interface") == ["ens1", "ens2"]


def build_erdma(root, *, visible: bool = True) -> sysfs_trees.Node:
    node = sysfs_trees.Node(root)
    node.add_interface("eth0", "10.20.0.7/24", mtu=1500)
    gids = [("fe80::216:3eff:fe2d:1", sysfs_trees.V2, "eth1"), ("172.16.4.8", sysfs_trees.V2, "eth1")]
    node.add_device("erdma_0", gids, pci="pci0000:00/0000:00:06.0", visible=visible)
    return node


def test_erdma_needs_no_gid_of_the_pod(tmp_path):
    build_erdma(tmp_path)
    result = run(tmp_path, "--transport=erdma", "--rail=rail0,resource=aliyun/erdma")
    assert (result.code, read_env(result)) == (0, {"NCCL_IB_HCA": "=erdma_0"})


def test_pvrdma_accepts_version_1_gids_and_devices_of_the_host(tmp_path):
    node = sysfs_trees.Node(tmp_path)
    node.add_interface("eth0", "10.1.1.4/24", mtu=1500)
    node.add_device("vmw_pvrdma0", [("fe80::1", sysfs_trees.V1, "ens192"), ("10.1.1.4", sysfs_trees.V1, "ens192")])
    result = run(tmp_path, "--transport=pvrdma", "--rail=rail0")
    assert read_env(result) == {"NCCL_IB_HCA": "=vmw_pvrdma0", "NCCL_IB_GID_INDEX": "1", "MC_GID_INDEX": "1"}


def test_efa_devices_need_no_resolution(tmp_path):
    node = sysfs_trees.Node(tmp_path)
    for number in (79, 95):
        node.add_device(f"rdmap{number}s0", [("fe80::efa", "", "")], link_layer="Unspecified", rate="100 Gb/sec")
    node.add_device("mlx5_0", link_layer="InfiniBand")
    result = run(tmp_path, "--transport=efa", *build_rail_options(2, "rail{0},resource=vpc.amazonaws.com/efa"))
    assert (result.code, read_env(result), result.files["nccl.conf"]) == (0, {}, "")
    assert result.line == "2 rails ready: rail0 rdmap79s0 100 Gb/sec, rail1 rdmap95s0 100 Gb/sec"
    assert run(tmp_path, "--transport=efa").line.startswith("2 rails ready: rdmap79s0 100 Gb/sec")


METADATA = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/railwright"


def describe_claim(node, request: str, device: str, interface: str = "", *, text: str = "") -> None:
    """Write the file of a driver (KEP-5304): one JSON object for each version of the API."""
    tree = (
        f'{{"requests": [{{"name": "{request}", "devices": [{{"name": "pci", "attributes": {{"dra.net/rdmaDevice": '
        f'{{"string": "{device}"}}}}, "networkData": {{"interfaceName": "{interface}"}}}}]}}]}}'
    )
    node.write(f"{METADATA}/{request}/dra.net-metadata.json", text or f"{tree}\n{tree}")


def test_claimed_devices_are_found_by_requests_named_like_the_rails(tmp_path):
    node = sysfs_trees.build_roce(tmp_path)
    for rail, other in enumerate((2, 0)):
        describe_claim(node, f"rail{rail}", f"mlx5_{other}", f"net{other + 1}")
    result = run(tmp_path, ROCE, *build_rail_options(2, "rail{0}"))
    assert (find(result, "device"), find(result, "interface")) == (["mlx5_2", "mlx5_0"], ["net3", "net1"])
    assert set(find(result, "basis")) == {"claim"}


def test_a_rail_gets_all_devices_of_its_claim_request(tmp_path):
    node = sysfs_trees.build_roce(tmp_path)
    devices = ", ".join(
        f'{{"attributes": {{"dra.net/rdmaDevice": {{"string": "mlx5_{k}"}}}}, "networkData": {{"interfaceName": '
        f'"net{k + 1}"}}}}'
        for k in (2, 0)
    )
    describe_claim(node, "rail0", "", text=f'{{"requests": [{{"name": "rail0", "devices": [{devices}]}}]}}')
    result = run(tmp_path, ROCE, "--rail=rail0", "--isolated")
    assert (find(result, "device"), find(result, "interface")) == (["mlx5_2", "mlx5_0"], ["net3", "net1"])
    assert read_env(result)["NCCL_IB_HCA"] == "=mlx5_2,mlx5_0"
    assert "MC_ENABLE_DEST_DEVICE_AFFINITY" not in read_env(result)


@pytest.mark.parametrize("text", ["{", "[]", '{"requests": 1}', '{"requests": [1, {"name": "rail0", "devices": {}}]}'])
def test_claims_without_device_names_from_the_driver_use_the_devices_of_the_container(tmp_path, text):
    node = sysfs_trees.build_roce(tmp_path, rails=2)
    describe_claim(node, "rail0", "", text=text)
    assert find(run(tmp_path, ROCE, *build_rail_options(2, "rail{0}")), "device") == ["mlx5_0", "mlx5_1"]


def test_a_device_with_two_ports_is_named_with_its_port(tmp_path):
    node = sysfs_trees.Node(tmp_path)
    folder = node.add_device("mlx4_0", link_layer="InfiniBand", ports=2)
    node.write(f"{folder}/ports/1/state", "1: DOWN")
    result = run(tmp_path, INFINIBAND, "--rail=rail0")
    assert (read_env(result)["NCCL_IB_HCA"], read_env(result)["UCX_NET_DEVICES"]) == ("=mlx4_0:2", "mlx4_0:2")
