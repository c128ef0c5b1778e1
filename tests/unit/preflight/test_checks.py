"""A contradiction to the policy stops the pod; one to an inferred value is a warning. Each has a fix."""

import contextlib
import io
import json
import threading

import pytest
import sysfs_trees
import yaml
from admitting import ROOT
from preflights import build_rail_options, read_conf, read_env, run

from railwright.preflight import __main__ as preflight
from railwright.preflight import checks, expected

ROCE = ("--transport=roce", *build_rail_options(4), "--mtu=4200")
PORT = "/sys/class/infiniband/mlx5_{}/ports/1"


def set_gid(node, device: int, index: int, address: str, kind: str = sysfs_trees.V2, interface: str = "") -> None:
    node.write_gid(PORT.format(device), index, address, kind, interface or f"net{device + 1}")


def remove(node, path: str) -> None:
    (node.root / path[1:]).unlink()


def remove_address(node, rail: int) -> None:
    """Leave the interface without address and GIDs."""
    table = node.root / "proc/net/fib_trie"
    table.write_text(table.read_text().replace(f"192.168.{rail + 2}.7", "198.51.100.1"))
    for name in ("6", "7"):
        set_gid(node, rail, int(name), "")


BROKEN = {
    "a port without link": (
        lambda node: node.write(f"{PORT.format(1)}/state", "1: DOWN"),
        "rail1 mlx5_1: port 1 is DOWN: check cable, transceiver and switch port",
    ),
    "another link layer": (
        lambda node: node.write(f"{PORT.format(2)}/link_layer", "InfiniBand"),
        "rail2 mlx5_2: port 1 is InfiniBand, roce needs Ethernet: correct transport",
    ),
    "RoCE v1 only": (
        lambda node: set_gid(node, 0, 7, "192.168.2.7", sysfs_trees.V1),
        "rail0 mlx5_0: GID 6 of 192.168.2.7 is IB/RoCE v1, not RoCE v2: set the port to RoCE v2",
    ),
    "no interface": (
        lambda node: (
            remove(node, "/sys/class/net/net1/mtu"),
            (node.root / "sys/class/net/net1").rename(node.root / "gone"),
        ),
        "rail0: interface net1 is not in the pod: check the network's CNI",
    ),
    "no device file": (
        lambda node: remove(node, "/dev/infiniband/uverbs1"),
        "rail1 mlx5_1: /dev/infiniband/uverbs1 is not in the container: request",
    ),
    "a device file that cannot be opened": (
        lambda node: (remove(node, "/dev/infiniband/uverbs1"), (node.root / "dev/infiniband/uverbs1").mkdir()),
        "rail1 mlx5_1: /dev/infiniband/uverbs1 cannot be opened (Is a directory): a mount alone",
    ),
    "no address": (lambda node: remove_address(node, 2), "rail2: net3 has no address: check the IPAM"),
    "another NIC as the network's master": (
        lambda node: [set_gid(node, 3, index, "") for index in (6, 7)],
        "rail3: no RoCE v2 GID of net4 (192.168.5.7): make `master` of the network",
    ),
    "an interface that is set down": (
        lambda node: node.write("/sys/class/net/net2/flags", "0x1002"),
        "rail1 mlx5_1: interface net2 is administratively down: find out what ran",
    ),
    "an interface without link": (
        lambda node: node.write("/sys/class/net/net3/operstate", "lowerlayerdown"),
        "rail2 mlx5_2: interface net3 has no link (lowerlayerdown): check cable",
    ),
    "a small MTU": (
        lambda node: [node.write(f"/sys/class/net/net{k}/mtu", "1500") for k in (1, 3)],
        "rail0 mlx5_0: net1 has MTU 1500, less than 4200, rail2 mlx5_2: net3 has MTU 1500, less than 4200: raise",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_rail_that_differs_from_the_policy_stops_the_pod_and_is_reported_with_the_fix(tmp_path, name):
    breaks, said = BROKEN[name]
    breaks(sysfs_trees.build_roce(tmp_path))
    result = run(tmp_path, *ROCE)
    assert (result.code, result.found["ready"]) == (1, False)
    assert said in result.line
    assert result.line.startswith("failed: ")
    warned = run(tmp_path, *ROCE, "--warn")
    assert (warned.code, warned.line) == (0, result.line.replace("failed", "warning", 1))
    assert "NCCL_IB_HCA" in read_env(warned), "the rails that are there"


def test_a_negative_gid_index_leaves_the_choice_to_nccl(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    for option in ("--gid-index=-1", "--set=NCCL_IB_GID_INDEX=-1"):
        assert (result := run(tmp_path, *ROCE, option)).code == 0, result.line
        assert "NCCL_IB_GID_INDEX selects" not in result.line
    assert read_conf(result.files["nccl.conf"])["NCCL_IB_GID_INDEX"] == "-1"


def test_if_device_files_exist_without_devices_the_fix_names_the_netns_mode(tmp_path):
    node = sysfs_trees.Node(tmp_path)
    rail = ("--transport=roce", "--rail=rail0,device=mlx5_0")
    assert "the device plugin on the node" in run(tmp_path, *rail).line
    node.write("/dev/infiniband/uverbs0", "")
    line = run(tmp_path, *rail).line
    assert "rail0 mlx5_0: device not found (found: none): there are device files but no devices" in line
    assert "`rdma system`" in line
    assert "no usable RDMA device (found: none)" in run(tmp_path, "--transport=roce").line
    unnamed = run(tmp_path, "--transport=roce", "--rail=rail0,interface=net1").line
    assert "rail0: no RDMA device left for this rail (found: none): there are device files but no devices" in unnamed


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("7", "4 rails ready"),
        ("3", "rail0 mlx5_0: NCCL_IB_GID_INDEX=3 selects RoCE v2 192.168.2.101, but 192.168.2.7 is GID 7"),
        ("6", "rail0 mlx5_0: NCCL_IB_GID_INDEX=6 selects IB/RoCE v1 192.168.2.7, but 192.168.2.7 is GID 7"),
        ("9", "rail0 mlx5_0: NCCL_IB_GID_INDEX=9 selects an empty entry, but"),
    ],
)
def test_a_stated_gid_index_must_have_an_address_of_the_pod(tmp_path, index, said):
    sysfs_trees.build_roce(tmp_path)
    for option in (f"--gid-index={index}", f"--set=NCCL_IB_GID_INDEX={index}"):
        result = run(tmp_path, *ROCE, option)
        assert (result.code, said in result.line) == (int(index != "7"), True), result.line
        assert read_conf(result.files["nccl.conf"])["NCCL_IB_GID_INDEX"] == index
    of_author = run(tmp_path, *ROCE, environment={"NCCL_IB_GID_INDEX": index})
    assert (of_author.code, said in of_author.line) == (0, True), of_author.line
    assert "NCCL_IB_GID_INDEX" not in read_env(of_author)
    assert read_env(of_author)["MC_GID_INDEX"] == "7"


def test_addresses_outside_the_stated_range_stop_the_pod(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    for whole in ("192.168.0.0/16", "192.168.7.7/16"):
        assert run(tmp_path, *ROCE, f"--address-range={whole}").code == 0
    result = run(tmp_path, *ROCE, "--address-range=192.168.2.0/23")
    assert "rail2 mlx5_2: GID address 192.168.4.7 is outside nccl.addressRange 192.168.2.0/23" in result.line
    assert "rail1" not in result.line
    assert "outside nccl.addressRange fd00::/8" in run(tmp_path, *ROCE, "--address-range=fd00::/8").line


@pytest.mark.parametrize(
    ("limit", "bounding", "options", "warned"),
    [
        ("unlimited", "0000000000000000", (), False),
        ("8388608", "0000000000000000", (), True),
        ("8388608", "0000000000004000", (), False),
        ("8388608", "0000000000004000", ("--non-root",), True),  # IPC_LOCK takes effect for root only
    ],
)
def test_a_low_limit_of_locked_memory_is_a_warning_unless_ranks_have_ipc_lock(
    tmp_path, limit, bounding, options, warned
):
    sysfs_trees.build_roce(tmp_path).set_memlock(limit, bounding)
    result = run(tmp_path, *ROCE, *options)
    assert (result.code, "warning: memlock: is limited to 8388608 bytes: grant" in result.line) == (0, warned)
    assert "4 rails ready: rail0" in result.line


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("=mlx5_0,mlx5_1,mlx5_2,mlx5_3", ""),
        ("mlx5", ""),
        ("=mlx5_1", "NCCL_IB_HCA: =mlx5_1 leaves out mlx5_0, mlx5_2, mlx5_3: correct or remove the variable"),
        ("=mlx5_7", "NCCL_IB_HCA: =mlx5_7 selects no device (found: mlx5_0, mlx5_1, mlx5_2, mlx5_3, mlx5_4): correct"),
    ],
)
def test_a_stated_device_list_is_kept_and_reported_if_it_leaves_out_a_rail(tmp_path, value, said):
    sysfs_trees.build_roce(tmp_path)
    of_author = run(tmp_path, *ROCE, environment={"NCCL_IB_HCA": value})
    of_policy = run(tmp_path, *ROCE, f"--set=NCCL_IB_HCA={value}")
    assert (of_author.code, of_policy.code) == (0, int(bool(said)))
    for result in (of_author, of_policy):
        assert (said or "4 rails ready") in result.line
        assert "NCCL_IB_HCA" not in read_env(result)
        assert read_conf(result.files["nccl.conf"])["NCCL_IB_HCA"] == value


def test_the_warning_about_each_wrong_variable_of_the_pods_author_has_its_own_fix(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    line = run(tmp_path, *ROCE, environment={"NCCL_IB_HCA": "=mlx5_0", "NCCL_IB_ADDR_FAMILY": "AF_INET6"}).line
    assert "NCCL_IB_HCA: =mlx5_0 leaves out mlx5_1, mlx5_2, mlx5_3: correct or remove the variable in the pod" in line
    assert "rail3 mlx5_3: GID address 192.168.5.7 is not of the family NCCL_IB_ADDR_FAMILY=AF_INET6: correct or" in line
    assert line.endswith(": correct or remove NCCL_IB_ADDR_FAMILY in the pod")


# --- files --------------------------------------------------------------------------------------------------


def test_variables_of_the_policy_are_written_to_the_files_of_their_libraries(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    values = ("NCCL_DEBUG=INFO", "FI_PROVIDER=efa", "UCX_TLS=rc,cuda", "GLOO_SOCKET_IFNAME=eth0", "NCCL_TOPO_FILE=/a=b")
    result = run(tmp_path, *ROCE, *[f"--set={value}" for value in values])
    nccl, ucx = (read_conf(result.files[name]) for name in ("nccl.conf", "ucx.conf"))
    assert {name: nccl.get(name) for name in ("NCCL_DEBUG", "FI_PROVIDER", "NCCL_TOPO_FILE", "UCX_TLS")} == {
        "NCCL_DEBUG": "INFO",
        "FI_PROVIDER": "efa",
        "NCCL_TOPO_FILE": "/a=b",
        "UCX_TLS": None,
    }
    assert (ucx["UCX_TLS"], "GLOO_SOCKET_IFNAME" in nccl | ucx) == ("rc,cuda", False)
    assert not read_env(result).keys() & {"NCCL_DEBUG", "UCX_TLS", "GLOO_SOCKET_IFNAME"}


def test_a_value_that_a_file_cannot_carry_is_left_out_with_a_warning(tmp_path):
    sysfs_trees.build_infiniband(tmp_path, rails=20, interfaces=False)
    result = run(
        tmp_path, "--transport=infiniband", *build_rail_options(20, "rail{0}"), f"--set=NCCL_DEBUG_FILE={'x' * 1024}"
    )
    assert result.code == 0
    assert len(read_env(result)["UCX_NET_DEVICES"]) > 180
    assert "UCX_NET_DEVICES: does not fit into a line of ucx.conf" in result.line
    assert "NCCL_DEBUG_FILE: does not fit into a line of nccl.conf" in result.line
    assert result.files["ucx.conf"] == ""
    options = ("--transport=infiniband", "--rail=rail0", f"--set=NCCL_X={'x' * 1023}")
    fitting = run(tmp_path, *options, f"--set=UCX_X={'x' * 192}")  # 199 bytes with the line break
    assert "does not fit" not in fitting.line
    assert max(map(len, fitting.files["ucx.conf"].splitlines())) == 198
    assert "UCX_X: does not fit" in run(tmp_path, *options, f"--set=UCX_X={'x' * 193}").line


@pytest.mark.parametrize("name", ["a'b", "a\nb"])
def test_a_device_name_with_unsafe_characters_is_not_written(tmp_path, name):
    sysfs_trees.Node(tmp_path).add_device(name, link_layer="InfiniBand")
    result = run(tmp_path, "--transport=infiniband", "--rail=rail0")
    assert read_env(result) == {"NVSHMEM_ENABLE_NIC_PE_MAPPING": "1"}


def test_files_of_the_preflight_are_readable_by_every_user(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    run(tmp_path, *ROCE)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()} == {0o644}


def call(*options: str) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        return preflight.main(options, {}), printed.getvalue()


def test_with_the_option_warn_all_files_are_written_after_any_error(tmp_path, monkeypatch):
    """A missing file stops the ranks' container for ever."""
    wrong = ("--transport=roce", "--option-of-a-newer-webhook", "--write", str(tmp_path))
    assert call(*wrong)[0] == 2
    assert list(tmp_path.iterdir()) == []
    assert call(*wrong, "--warn")[0] == 0
    assert (tmp_path / "rails.env").read_text() == ""
    assert json.loads((tmp_path / "rails.json").read_text())["ready"] is False
    sysfs_trees.build_roce(tmp_path / "node")
    arguments = ("--transport=roce", f"--root={tmp_path / 'node'}", "--write", str(tmp_path), "--warn")
    monkeypatch.setattr(preflight.resolution, "resolve_rails", lambda _: 1 / 0)
    (tmp_path / "rails.env").unlink()
    code, printed = call(*arguments)
    assert (code, "ZeroDivisionError" in printed, (tmp_path / "rails.env").read_text()) == (0, True, "")
    monkeypatch.undo()
    code, printed = call("--transport=roce", f"--root={tmp_path / 'node'}", "--write", "/nowhere/at/all", "--warn")
    assert (code, "/nowhere/at/all: No such file or directory" in printed) == (0, True)


# --- the command --------------------------------------------------------------------------------------------


def test_the_preflight_waits_for_a_port_that_becomes_active_later(tmp_path):
    node = sysfs_trees.build_infiniband(tmp_path)
    node.write(f"{PORT.format(11)}/state", "2: INIT")
    options = ("--transport=infiniband", *build_rail_options(8))
    assert "rail1 mlx5_11: port 1 is INIT: the subnet manager has not configured" in run(tmp_path, *options).line
    timer = threading.Timer(0.2, node.write, [f"{PORT.format(11)}/state", "4: ACTIVE"])
    timer.start()
    assert run(tmp_path, *options, "--wait=20").line.startswith("8 rails ready")
    timer.join()


def test_the_preflight_waits_until_the_gid_of_an_ended_pod_with_its_address_is_gone(tmp_path):
    """Soft RoCE shows the GIDs of all pods of a node, and an address can be reused before its interface is removed."""
    node = sysfs_trees.build_roce(tmp_path, 1)
    set_gid(node, 0, 3, "192.168.2.7", interface="net1")
    options = ("--transport=roce", *build_rail_options(1))
    line = run(tmp_path, *options).line
    assert (
        "rail0 mlx5_0: GIDs 3, 7 have the address 192.168.2.7, and the first is used: another pod of the node" in line
    )
    timer = threading.Timer(0.2, set_gid, [node, 0, 3, ""])
    timer.start()
    assert "GID 7 mtu" in run(tmp_path, *options, "--wait=20").line
    timer.join()


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--transport=tcp"],
        ["--transport=roce", "--rail=,device=x"],
        ["--transport=roce", "--rail=a,port=1"],
        ["--transport=roce", "--set=NAME"],
        ["--transport=roce", "--address-range=x"],
    ],
)
def test_wrong_options_of_the_preflight_exit_with_2(options):
    code, printed = call(*options)
    assert (code, "usage:" in printed) == (2, True)


def test_the_result_line_is_limited_and_groups_problems_with_the_same_fix(tmp_path):
    sysfs_trees.build_roce(tmp_path)
    long = run(tmp_path, "--transport=roce", *[f"--rail={'r' * 50}{k},device={'d' * 60}{k}" for k in range(100)]).line
    assert (len(long) <= 1000, long.endswith("...")) == (True, True)
    line = run(tmp_path, "--transport=roce", *[f"--rail=r{k},device=d{k}" for k in range(100)]).line
    assert " and 92 more: check the rail's resource" in line


def test_addresses_behind_thousands_of_routes_are_found(tmp_path):
    node = sysfs_trees.build_roce(tmp_path)
    table, routes = ((tmp_path / "proc/net" / name).read_text() for name in ("fib_trie", "route"))
    others = [f"10.{number >> 8}.{number & 255}.0" for number in range(10_000)]
    node.write("/proc/net/fib_trie", "".join(f"|-- {other}\n/24 universe UNICAST\n" for other in others) + table)
    header, _, own = routes.partition("\n")
    unused = "".join(f"lxc{number}\t{number:08X}\t00000000\t5\t0\t0\t0\tFFFFFFFF\n" for number in range(10_000))
    node.write("/proc/net/route", f"{header}\n{unused}{own}")
    assert (tmp_path / "proc/net/fib_trie").stat().st_size > 300_000
    assert run(tmp_path, *ROCE).line.startswith("4 rails ready")


def test_malformed_lines_in_proc_and_sys_are_skipped(tmp_path):
    node = sysfs_trees.build_roce(tmp_path)
    node.write("/sys/class/net/net\u00b2/mtu", "\u00b2")
    for name, line in (
        ("net/fib_trie", "|-- here\n/32 host LOCAL\n"),
        ("net/route", "net1 Z 00000000 0 0 0 0 Z\n"),
        ("net/if_inet6", "z net1\n"),
        ("self/status", "CapBnd: z\n"),
    ):
        with (tmp_path / "proc" / name).open("a") as file:
            file.write(line)
    assert run(tmp_path, *ROCE).line.startswith("4 rails ready")


@pytest.mark.parametrize(
    ("flags", "state", "ready"),
    [
        ("0x1043", "unknown", True),  # of a driver that does not report it
        ("0x1003", "down", False),
        ("0x1003", "dormant", False),
        ("0x1002", "", False),
        ("", "", True),
        ("flags", "state", True),
    ],
)
def test_an_interface_that_is_down_stops_the_pod(tmp_path, flags, state, ready):
    node = sysfs_trees.build_roce(tmp_path, rails=1)
    node.write("/sys/class/net/net1/flags", flags)
    node.write("/sys/class/net/net1/operstate", state)
    for rail in ("rail0,interface=net1", "rail0"):
        assert run(tmp_path, "--transport=roce", f"--rail={rail}").code == (not ready)


VECTORS = yaml.safe_load((ROOT / "tests/data/nccl-vectors.yaml").read_text())["hca_filter"]


def test_an_hca_list_selects_the_devices_that_nccl_selects():
    ports = [device.rpartition(":") for device in VECTORS["devices"]]
    assert len(VECTORS["cases"]) == 20
    for case in VECTORS["cases"]:
        chosen = [f"{name}:{port}" for name, _, port in ports if expected.selects_port(case["value"], name, int(port))]
        assert chosen == case["selected"], case["value"]


def test_the_result_line_lists_no_rails_if_every_rail_has_a_warning():
    problem = checks.Problem("rail0", "has no address", "add one", stated=False)
    assert checks.format_result(None, (), [problem]) == "0 rails ready; warning: rail0: has no address: add one"
