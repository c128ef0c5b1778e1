"""Recorded hosts: a ready one is reported in one line, any other with the location and the fix."""

import ipaddress
import json
import threading

import pytest
import tables
import trees
from admitting import ROOT

from railwright.preflight import __main__ as preflight
from railwright.preflight import checks, expected
from railwright.preflight import host as hosts

RAILS = [f"rail{k},device=mlx5_{k},interface=net{k + 1}" for k in range(4)]
ROCE = [f"--rail={rail}" for rail in RAILS]
INFINIBAND = [f"--rail=rail{k},interface=net{k + 1}" for k in range(8)]
BARE = ["--transport=infiniband", *[f"--rail=rail{k}" for k in range(8)]]
BY_TRANSPORT = {"roce": [*ROCE, "--mtu=4200"], "infiniband": INFINIBAND}


@pytest.fixture
def run(tmp_path, capsys):
    def run_on(tree: str, *options: str, environment: dict | None = None) -> tuple[int, str]:
        root = trees.lay_out(tree, tmp_path / tree)
        code = preflight.main([f"--root={root}", *options], environment or {})
        printed = capsys.readouterr()
        assert not (printed.out and printed.err), printed
        lines = (printed.out or printed.err).splitlines()
        assert (root / "dev/termination-log").read_text().splitlines()[:1] == lines
        assert len(lines) == 1, lines
        assert bool(printed.err) == ("failed:" in lines[0] or "warning:" in lines[0])
        return code, lines[0].removeprefix("railwright preflight ")

    return run_on


@pytest.mark.parametrize(
    ("tree", "options", "said"),
    [
        (
            "roce",
            ["--transport=roce", *ROCE, "--mtu=4200"],
            "4 rails ready: " + ", ".join(f"rail{k} mlx5_{k} 192.168.{k + 2}.7 GID 7 mtu 9000" for k in range(4)),
        ),
        (
            "bond",
            ["--transport=roce", "--rail=rail0,device=mlx5_bond_0,interface=net1", "--mtu=4200"],
            "1 rail ready: rail0 mlx5_bond_0 10.8.1.40 GID 5 mtu 4500",
        ),
        (
            "erdma",
            ["--transport=erdma", "--rail=rail0", "--hca=erdma"],
            "1 rail ready: rail0 erdma_0 100 Gb/sec (4X EDR)",
        ),
        (
            "pvrdma",
            ["--transport=pvrdma", "--rail=rail0,device=vmw_pvrdma0"],
            "1 rail ready: rail0 vmw_pvrdma0 10 Gb/sec (4X SDR)",
        ),
        ("efa", ["--transport=efa", "--hca==mlx5_0"], "4 rails ready: rdmap79s0 100 Gb/sec"),
        ("broken/ipc-lock", ["--transport=roce", *ROCE], "4 rails ready"),
        (
            "rxe",
            ["--transport=roce", "--rail=rail0,device=rxe0,interface=net1", "--mtu=4200"],
            "1 rail ready: rail0 rxe0 192.168.2.7 GID 0 mtu 9000",
        ),
        ("rxe", ["--transport=roce", "--rail=rail0"], "1 rail ready: rail0 rxe0 192.168.2.7 GID 0 mtu 9000"),
        # without rails, every device that the container can use is one
        ("roce", ["--transport=roce"], "4 rails ready: mlx5_0 192.168.2.7 GID 7 mtu 9000, mlx5_1 "),
    ],
)
def test_a_host_without_problems_is_reported_in_one_line(run, tree, options, said):
    code, line = run(tree, *options)
    assert line.startswith(said)
    assert code == 0


def test_functions_without_a_known_name_are_identified_by_their_interfaces(run):
    code, line = run("infiniband", "--transport=infiniband", *INFINIBAND, "--mtu=4000", "--hca=mlx5")
    assert (code, line.count("mtu 4092")) == (0, 8)
    assert "rail0 mlx5_2 10.10.0.5 mtu 4092" in line
    assert "rail7 mlx5_65 10.17.0.5 mtu 4092" in line


def test_functions_without_interfaces_are_taken_in_natural_order_as_far_as_the_container_has_them(run):
    code, line = run("infiniband", *BARE)
    assert code == 0
    assert "rail0 mlx5_2 10.10.0.5 mtu 4092, rail1 mlx5_11" in line  # mlx5_0 is the host's


@pytest.mark.parametrize(
    ("tree", "transport", "said"),
    [
        ("port-down", "roce", "rail1 mlx5_1: port 1 is DOWN: check cable, transceiver and switch port"),
        ("port-init", "infiniband", "rail1 mlx5_11: port 1 is INIT: the subnet manager has not configured the port"),
        ("wrong-link-layer", "roce", "rail2 mlx5_2: port 1 is InfiniBand, roce needs Ethernet: correct transport"),
        ("no-gid", "roce", "rail3 mlx5_3: no RoCE v2 GID of net4 (192.168.5.7): the network's master and"),
        ("only-v1", "roce", "rail0 mlx5_0: GID 6 of 192.168.2.7 is IB/RoCE v1, not RoCE v2: set the port to RoCE v2"),
        (
            "small-mtu",
            "roce",
            "rail0 mlx5_0: net1 has MTU 1500, less than 4200, rail2 mlx5_2: net3 has MTU 1500, less than 4200: raise",
        ),
        ("no-uverbs", "roce", "rail1 mlx5_1: /dev/infiniband/uverbs1 is not in the container: request"),
        ("no-device", "roce", "rail3 mlx5_3: device not found (found: mlx5_0, mlx5_1, mlx5_2, mlx5_4): check"),
        ("memlock", "roce", "memlock: is limited to 8388608 bytes: grant IPC_LOCK"),
        ("no-gid-attrs", "roce", "rail0 mlx5_0: GID 6 of 192.168.2.7 is of unknown type"),
        ("no-interface", "roce", "rail0 mlx5_0: interface net1 is not in the pod: check the network's CNI"),
        ("no-address", "roce", "rail2 mlx5_2: net3 has no address: check the IPAM"),
        ("interface-set-down", "roce", "rail1 mlx5_1: interface net2 is administratively down: find out what ran"),
        ("interface-no-link", "roce", "rail2 mlx5_2: interface net3 has no link (lowerlayerdown): check cable"),
    ],
)
def test_each_problem_is_reported_with_place_and_fix_and_stops_the_job(run, tree, transport, said):
    code, line = run(f"broken/{tree}", f"--transport={transport}", *BY_TRANSPORT[transport])
    assert code == 1
    assert line.startswith(f"failed: {said}")
    others = {"no-gid-attrs": 4, "small-mtu": 2}.get(tree, 1)
    assert sum(line.count(f"rail{k} ") for k in range(8)) == others - (tree == "memlock"), "a whole rail is accused"


@pytest.mark.parametrize(
    ("tree", "transport", "rails"),
    [
        ("port-down", "roce", ["rails out of order: rail1"]),
        ("port-init", "infiniband", ["rails out of order: rail1"]),
        ("interface-no-link", "roce", ["rails out of order: rail2"]),
        ("interface-set-down", "roce", []),
        ("small-mtu", "roce", []),
        ("no-device", "roce", []),
        ("memlock", "roce", []),
    ],
)
def test_the_termination_message_names_rails_whose_nic_is_at_fault(run, tmp_path, tree, transport, rails):
    run(f"broken/{tree}", f"--transport={transport}", *BY_TRANSPORT[transport])
    message = (tmp_path / "broken" / tree / "dev/termination-log").read_text()
    assert message.splitlines()[1:] == rails


def test_a_warning_lets_the_job_start(run):
    code, line = run("broken/port-down", "--transport=roce", *ROCE, "--warn")
    assert (code, line.startswith("warning: rail1 mlx5_1: port 1 is DOWN")) == (0, True)


UNWRITTEN = (
    "failed: NCCL_IB_HCA: was not written at binding: railwright was not called, or did not know the node: delete the "
    "pod so that it is bound again"
)


@pytest.mark.parametrize(
    ("tree", "options", "hca", "said"),
    [
        ("broken/seven-functions", BARE, "", "rail7: no RDMA device left for this rail (found: mlx5_0, mlx5_2, "),
        ("roce", ROCE, "=mlx5_7", "NCCL_IB_HCA: =mlx5_7 matches no device"),
        ("roce", ROCE, "=not-written-at-binding", UNWRITTEN),
        ("infiniband", ["--hca=mlx5"], "", "port 1 is InfiniBand, roce needs Ethernet"),
        (
            "roce",
            ["--rail=rail0,device=mlx5_0,interface=net2"],
            "",
            "rail0 mlx5_0: no RoCE v2 GID of net2 (192.168.3.7): ",
        ),
    ],
    ids=["a function is missing", "an unknown device", "no device was written", "another transport", "another NIC"],
)
def test_expectations_that_the_host_does_not_meet_are_problems(run, tree, options, hca, said):
    code, line = run(tree, "--transport=roce", *options, environment={"NCCL_IB_HCA": hca} if hca else {})
    assert (code, said in line) == (1, True), line
    assert len(line) <= 1030


def test_device_files_without_devices_point_to_the_network_namespace(tmp_path, capsys):
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    command = [f"--root={tmp_path}", "--transport=roce", "--rail=rail0,device=mlx5_0"]
    preflight.main(command, {})
    assert "the device plugin on the node" in capsys.readouterr().err
    (tmp_path / "dev/infiniband/uverbs0").touch()
    preflight.main(command, {})
    line = capsys.readouterr().err
    assert "rail0 mlx5_0: device not found (found: none): there are device files but no devices" in line
    assert "`rdma system`" in line


def test_a_capability_does_not_help_ranks_that_are_not_root(run):
    assert run("broken/ipc-lock", "--transport=roce", *ROCE, "--non-root")[0] == 1


def test_the_file_gives_the_devices_that_the_binding_wrote_in_the_order_of_the_rails(run, tmp_path):
    (tmp_path / "roce/etc").mkdir(parents=True)
    (tmp_path / "roce/etc/nccl.conf").write_text("NCCL_DEBUG=WARN\nNCCL_IB_HCA==mlx5_1,mlx5_0\n")
    code, line = run("roce", "--transport=roce", "--rail=rail0", "--rail=rail1")
    assert (code, line.split(",")[0]) == (0, "2 rails ready: rail0 mlx5_1 192.168.3.7 GID 7 mtu 9000")


def test_a_device_file_that_may_not_be_opened_is_no_device(tmp_path, capsys):
    root = trees.lay_out("pvrdma", tmp_path)
    node = root / "dev/infiniband/uverbs0"
    node.unlink()
    node.mkdir()  # like a cgroup's refusal, an error of open(2) that no mode bits make, root or not
    assert preflight.main([f"--root={root}", "--transport=pvrdma", "--rail=rail0,device=vmw_pvrdma0"], {}) == 1
    assert "/dev/infiniband/uverbs0 cannot be opened (Is a directory): a mount alone" in capsys.readouterr().err


def test_a_port_that_comes_up_a_moment_later_is_waited_for(tmp_path, capsys):
    root = trees.lay_out("broken/port-init", tmp_path)
    (state,) = root.glob("sys/devices/*/0000:2a:00.2/infiniband/*/ports/1/state")
    timer = threading.Timer(0.3, state.write_text, ["4: ACTIVE\n"])
    timer.start()
    code = preflight.main([f"--root={root}", "--transport=infiniband", *INFINIBAND, "--wait=20"], {})
    timer.join()
    assert (code, "8 rails ready" in capsys.readouterr().out) == (0, True)


def test_a_program_reads_the_same_as_json(tmp_path, capsys):
    root = trees.lay_out("broken/small-mtu", tmp_path)
    assert preflight.main([f"--root={root}", "--transport=roce", *ROCE, "--mtu=4200", "-o", "json"], {}) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["ready"], [rail["rail"] for rail in document["rails"]]) == (False, ["rail1", "rail3"])
    assert document["problems"][0]["where"] == "rail0 mlx5_0"


@pytest.mark.parametrize(
    "options",
    [[], ["--transport=tcp"], ["--transport=roce", "--rail=,device=x"], ["--transport=roce", "--rail=a,port=1"]],
)
def test_wrong_usage_exits_2(options, capsys):
    assert preflight.main(options, {}) == 2
    assert "usage:" in capsys.readouterr().err


def test_an_interface_with_a_comma_in_its_name_is_read_whole():
    from railwright.preflight import expected

    assert expected.parse_rail("r0,device=d,interface=a,b") == expected.Rail("r0", "d", "a,b")


def test_a_host_without_devices_is_a_problem(tmp_path, capsys):
    assert preflight.main([f"--root={tmp_path}", "--transport=roce"], {}) == 1
    assert "no usable RDMA device (found: none)" in capsys.readouterr().err
    assert preflight.main([f"--root={tmp_path}", "--transport=roce", *ROCE], {}) == 1


def test_a_device_goes_to_one_rail_only(run):
    code, line = run("roce", "--transport=roce", "--rail=rail0,device=mlx5_0", "--rail=rail1")
    assert (code, "rail0 mlx5_0 " in line, "rail1 mlx5_1 " in line) == (0, True, True)


def test_two_devices_of_one_pci_function_have_their_own_files(tmp_path):
    root = trees.lay_out("erdma", tmp_path)
    other = root / "sys/devices/pci0000:00/0000:00:06.0/infiniband_verbs/uverbs1"
    other.mkdir()
    (other / "ibdev").write_text("erdma_1\n")
    (root / "sys/class/infiniband_verbs/uverbs1").symlink_to(other)
    assert preflight.main([f"--root={root}", "--transport=erdma", "--rail=rail0"], {}) == 0


def test_the_line_is_bounded_however_much_is_wrong(run):
    _, line = run("roce", "--transport=roce", *[f"--rail={'r' * 50}{k},device={'d' * 60}{k}" for k in range(100)])
    assert (len(line) <= 1000, line.endswith("...")) == (True, True)


def test_problems_with_the_same_fix_are_reported_together_and_others_counted(run):
    _, line = run("roce", "--transport=roce", *[f"--rail=r{k},device=d{k}" for k in range(100)])
    assert " and 92 more: check the rail's resource" in line


@pytest.mark.parametrize(
    ("index", "code", "said"),
    [
        ("7", 0, "4 rails ready"),
        ("-1", 0, "4 rails ready"),
        ("3", 1, "rail0 mlx5_0: NCCL_IB_GID_INDEX=3 selects RoCE v2 192.168.2.101, but 192.168.2.7 is GID 7"),
        ("6", 1, "rail0 mlx5_0: NCCL_IB_GID_INDEX=6 selects IB/RoCE v1 192.168.2.7, but 192.168.2.7 is GID 7"),
        ("9", 1, "rail0 mlx5_0: NCCL_IB_GID_INDEX=9 selects an empty entry, but"),
    ],
)
def test_a_fixed_gid_index_must_be_the_pods_own_entry(run, index, code, said):
    answer, line = run("roce", "--transport=roce", *ROCE, environment={"NCCL_IB_GID_INDEX": index})
    assert (answer, said in line) == (code, True), line


@pytest.mark.parametrize(
    ("address", "environment", "said"),
    [
        ("192.168.2.7", {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, "IPv6 addresses only: give the interface a global IPv6"),
        ("fd00::207", {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, "1 rail ready: rail0 mlx5_0 fd00::207"),
        ("fd00::207", {}, "IPv4 addresses only: set `addressFamily: AF_INET6` in the policy"),
        ("fd00::207", {"NCCL_IB_ADDR_FAMILY": "AF_INET"}, "IPv4 addresses only"),
        ("fd00::207", {"NCCL_IB_GID_INDEX": "7"}, "1 rail ready"),
    ],
)
def test_a_rail_has_an_address_of_the_family_that_nccl_uses(tmp_path, capsys, address, environment, said):
    root = trees.lay_out("roce", tmp_path)
    if ":" in address:
        exploded = ipaddress.IPv6Address(address).exploded
        for gid in root.glob("sys/devices/*/*/infiniband/mlx5_0/ports/1/gids/[67]"):
            gid.write_text(f"{exploded}\n")
        with (root / "proc/net/if_inet6").open("a") as file:
            file.write(f"{exploded.replace(':', '')} 0c 40 00 80 net1\n")
    preflight.main([f"--root={root}", "--transport=roce", f"--rail={RAILS[0]}"], environment)
    assert said in "".join(capsys.readouterr())


def test_malformed_lines_are_skipped_and_valid_ones_beside_them_count(tmp_path):
    root = trees.lay_out("roce", tmp_path / "roce")
    proc, net = root / "proc", root / "sys/class/net/net\u00b2"
    net.mkdir(parents=True)
    (net / "mtu").write_text("\u00b2")
    for name, line in (
        ("net/fib_trie", "|-- here\n/32 host LOCAL\n"),
        ("net/route", "net1 Z 00000000 0 0 0 0 Z\n"),
        ("net/if_inet6", "z net1\n"),
        ("self/status", "CapBnd: z\n"),
    ):
        file = proc / name
        file.write_text((file.read_text() if file.exists() else "") + line)
    report = checks.check(hosts.Host(root), expected.Expected("roce", tuple(map(expected.parse_rail, RAILS)), mtu=4200))
    assert (report.problems, len(report.rails)) == ((), 4)


LINKS = [  # flags and state of an interface, and whether packets can pass
    ("0x1043", "up", True),
    ("0x1043", "unknown", True),  # of a driver that does not report it
    ("0x1003", "lowerlayerdown", False),
    ("0x1003", "down", False),
    ("0x1003", "dormant", False),
    ("0x1002", "down", False),
    ("0x1002", "", False),
    ("", "", True),
    ("flags", "state", True),
]


@pytest.mark.parametrize(("link", "rail"), tables.pair(LINKS, ["rail0,interface=net1", "rail0"]))
def test_an_interface_counts_only_while_packets_can_pass(tmp_path, rail, link):
    flags, state, ready = link
    root = trees.lay_out("rxe", tmp_path)
    for name, word in (("flags", flags), ("operstate", state)):
        (root / "sys/class/net/net1" / name).write_text(f"{word}\n")
    assert preflight.main([f"--root={root}", "--transport=roce", f"--rail={rail}"], {}) == (not ready)


def test_device_files_are_read_from_the_pci_function_if_the_verbs_class_is_hidden(run, tmp_path):
    assert run("roce", "--transport=roce", *ROCE)[0] == 0
    for link in (tmp_path / "roce/sys/class/infiniband_verbs").iterdir():
        link.unlink()
    for name in tmp_path.glob("roce/sys/devices/*/*/infiniband_verbs/*/ibdev"):
        name.unlink()
    assert preflight.main([f"--root={tmp_path / 'roce'}", "--transport=roce", *ROCE], {}) == 0


VECTORS = json.loads((ROOT / "tests/data/nccl-hca.json").read_text())


def test_an_hca_list_selects_the_devices_that_nccl_selects():
    ports = [device.rpartition(":") for device in VECTORS["devices"]]
    assert len(VECTORS["cases"]) == 20
    for case in VECTORS["cases"]:
        chosen = [f"{name}:{port}" for name, _, port in ports if expected.selects(case["value"], name, int(port))]
        assert chosen == case["selected"], case["value"]


def test_only_an_exact_list_names_devices():
    names = {"=a,b": ("a", "b"), "=a:1,a:2,": ("a",), "a,b": (), "^=a": (), "=^a": (), "": ()}
    assert {value: expected.parse_exact_list(value) for value in names} == names
