"""Two readings of a rank's counters give the rails that carried data, and the bytes over TCP."""

import json
import subprocess

import preflights
import pytest
import sysfs_trees

from railwright.fabric.verification import counters

SENT, RECEIVED = counters._COUNTERS[0][:2]
NET = "Inter-| Receive | Transmit\n face |bytes packets\n"


def read(
    rails: dict[str, tuple[int, int]], *, eth0: int = 0, net1: int = 0, uptime: int = 5, found=()
) -> counters.Reading:
    """Return the counters in the command's output: words of a port by device, and bytes of interfaces."""
    lines = [
        f"{device}/ports/1 {name} {value}"
        for device, values in rails.items()
        for name, value in zip((SENT, RECEIVED), values, strict=True)
    ]
    lines += ["uptime", f"{uptime}.25 30.1", "net", NET.strip()]
    lines += [
        f"{name}: {count} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        for name, count in (("lo", 10**9), ("eth0", eth0), ("net1", net1))
    ]
    tree = {
        "version": 1,
        "rails": [{"name": name, "device": device, "port": 1, **more} for name, device, more in found],
    }
    return counters.parse_output("\n".join([*lines, "rails", json.dumps(tree) if found else ""]))


PCI = {"pci": "0000:10:00.0", "interface": "net1"}
TWO = [("rail0", "mlx5_0", PCI), ("rail1", "mlx5_1", PCI)]
GIGABYTE = 10**9 // 4  # words


def test_a_report_counts_every_rail_that_carried_data():
    before = read({"mlx5_0": (10, 10), "mlx5_1": (20, 20), "mlx5_9": (0, 0)}, found=TWO)
    after = read(
        {"mlx5_0": (10 + GIGABYTE, 10), "mlx5_1": (20, 20 + GIGABYTE), "mlx5_9": (9, 9)},
        eth0=2000,
        uptime=15,
        found=TWO,
    )
    report = counters.assess_traffic({"w-0": (before, after), "w-1": (before, after)}, {})
    assert (report.state, report.line) == ("rdma", "RDMA on 2 of 2 rails: 4.0 GB in 10 s by 2 pods, 4.0 kB over TCP")
    assert [(row.rail, row.device, row.sent, row.received) for row in report.rails[:2]] == [
        ("rail0", "mlx5_0", 10**9, 0),
        ("rail1", "mlx5_1", 0, 10**9),
    ]


def test_an_idle_rail_is_named_with_its_pod():
    start = read({"mlx5_0": (0, 0), "mlx5_1": (0, 0)}, found=TWO)
    good = read({"mlx5_0": (GIGABYTE, 0), "mlx5_1": (GIGABYTE, 0)}, uptime=15, found=TWO)
    half = read({"mlx5_0": (GIGABYTE, 0), "mlx5_1": (1000, 0)}, uptime=15, found=TWO)
    report = counters.assess_traffic({"w-0": (start, good), "w-1": (start, half)}, {})
    assert report.state == "partial"
    assert report.line.startswith("RDMA on 1 of 2 rails: 3.0 GB in 10 s by 2 pods")
    assert report.line.endswith("; idle: rail1 (mlx5_1) of w-1")
    missing = read({"mlx5_0": (GIGABYTE, 0)}, uptime=15, found=[TWO[0], ("rail1", None, {"port": None})])
    assert counters.assess_traffic({"w-0": (start, missing)}, {}).line.endswith(
        "; idle: rail1 (no device was found) of w-0"
    )
    none = counters.assess_traffic({"w-0": (start, good), "w-1": (start, start)}, {})
    assert none.line.endswith("idle: rail0 (mlx5_0) of w-1, rail1 (mlx5_1) of w-1")


def test_counters_distinguish_tcp_from_an_idle_job():
    start = read({"mlx5_0": (0, 0), "mlx5_1": (0, 0)}, found=TWO)
    over_tcp = read({"mlx5_0": (9, 0), "mlx5_1": (0, 0)}, eth0=10**9, net1=10**9, uptime=15, found=TWO)
    report = counters.assess_traffic({"w-0": (start, over_tcp)}, {})
    assert (report.state, report.line) == (
        "tcp",
        "TCP, not RDMA: no rail carried data, and 2.0 GB over TCP in 10 s by 1 pod",
    )
    idle = counters.assess_traffic({"w-0": (start, start)}, {})
    assert (idle.state, "measure while the job trains" in idle.line) == ("unknown", True)
    none = counters.assess_traffic({"w-0": (read({}), read({}))}, {})
    assert none.line.startswith("cannot tell: no pod can read counters of an RDMA device")


def test_only_as_many_ports_as_expected_rails_count_if_no_preflight_names_the_rails():
    start = read({"mlx5_0": (0, 0), "mlx5_1": (0, 0), "mlx5_9": (0, 0)})
    end = read({"mlx5_0": (GIGABYTE, 0), "mlx5_1": (0, 0), "mlx5_9": (0, 0)}, uptime=15)
    assert counters.assess_traffic({"w-0": (start, end)}, {"w-0": 2}).line.startswith("RDMA on 1 of 2 rails")
    assert counters.assess_traffic({"w-0": (start, end)}, {"w-0": 1}).state == "rdma"
    assert counters.assess_traffic({"w-0": (start, end)}, {}).line.startswith("RDMA on 1 of 1 rail")


@pytest.mark.parametrize("number", range(len(counters._COUNTERS)))
def test_the_counter_command_reads_the_counters_of_each_kind_of_device(tmp_path, number):
    """The command runs in a shell, on the files that preflight reads too, with other folders than the machine's."""
    sent, received, unit = counters._COUNTERS[number]
    node = sysfs_trees.build_roce(tmp_path, rails=2)
    preflights.run(tmp_path, "--transport=roce", *preflights.build_rail_options(2))
    for device in range(2):
        for name, value in ((sent, 100 + device), (received, 7)):
            node.write(f"/sys/class/infiniband/mlx5_{device}/ports/1/{name}", str(value))
    node.write("/proc/uptime", "35.11 20.1")
    node.write("/proc/net/dev", f"{NET}  eth0:     120 1 0 0 0 0 0 0      30 1 0 0 0 0 0 0")
    script = counters.COMMAND[2]
    for path, place in (("/sys/class", "sys/class"), ("/proc/", "proc/"), ("/run/railwright/", "run/")):
        script = script.replace(f" {path}", f" {tmp_path}/{place}")
    output = subprocess.run(["sh", "-c", script], capture_output=True, check=True, text=True)
    assert output.stderr == ""
    reading = counters.parse_output(output.stdout)
    assert (reading.uptime, reading.interfaces) == (35, {"eth0": 150})
    assert reading.ports == {f"mlx5_{device}:1": ((100 + device) * unit, 7 * unit) for device in range(2)}
    assert [(rail.name, rail.device, rail.port, rail.interface) for rail in reading.rails] == [
        ("rail0", "mlx5_0", 1, "net1"),
        ("rail1", "mlx5_1", 1, "net2"),
    ]


def test_the_counter_command_runs_python_if_sysfs_has_no_counters(tmp_path):
    """As in a pod whose devices are the node's; tests/e2e/rdma runs the code on a kernel that has such devices."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\necho "$2" > "$0.code"; echo mlx5_0/ports/1 hw_counters/sent_pkts 5')
    python.chmod(0o755)
    (tmp_path / "mlx5_0/ports/1").mkdir(parents=True)
    script = counters.COMMAND[2].replace("cd /sys/class/infiniband", f"cd {tmp_path}")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    output = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, check=True, text=True).stdout
    assert output.startswith("mlx5_0/ports/1 hw_counters/sent_pkts 5\n")
    compile((tmp_path / "python3.code").read_text(), "netlink", "exec")


@pytest.mark.parametrize(
    "output", ["", "\n\n", "net\nnet\nrails\n{", "a b c\na b " + "9" * 5000, "uptime\nx\nrails\n[1]"]
)
def test_any_output_of_the_counter_command_is_read_without_an_exception(output):
    assert counters.parse_output(output).rails == ()
