"""Preflight against RDMA devices of a real kernel, in a virtual machine with soft RoCE and soft iWARP (siw).

The kernel makes sysfs, uverbs and GID tables. Soft RoCE devices have the names of 360 Smart Cloud's, soft iWARP devices
those of Alibaba Cloud's eRDMA, which is iWARP too. A pod's network namespace has a macvlan interface on each rail.
"""

import json
import re
import subprocess
import sys

import debian
import pytest
from realnode import machine, rails, virtual_machine

_SECONDS = 900  # of one boot with all steps: they take a core for one to two minutes, and a busy machine shares it
pytestmark = pytest.mark.timeout(_SECONDS + 60)
READY = ", ".join(f"rail{rail} mlx5_{rail} 192.168.{rail + 2}.9 GID \\d+ mtu 9000" for rail in range(4))


def find_devices(folder) -> list[str]:
    """Return the devices that NCCL_IB_HCA names in a rank of 360 Smart Cloud's job."""
    job = rails.describe_job("rdma-test")
    (folder / "job.json").write_text(json.dumps(job))
    command = ("explain", str(folder / "job.json"), f"--policy={rails.EXAMPLE / 'policy.yaml'}", "--output=json")
    output = subprocess.run(
        [sys.executable, "-m", "railwright.cli", *command], capture_output=True, text=True, check=True
    ).stdout
    (value,) = set(re.findall(r'"name": "NCCL_IB_HCA",\s+"value": "=([^"]+)"', output))
    return value.split(",")


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Output and exit code of each step in the virtual machine, booted once."""
    if reason := machine.find_obstacle() or virtual_machine.find_obstacle():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("machine")
    try:
        return virtual_machine.run(find_devices(folder), folder=folder, seconds=_SECONDS)
    except debian.UnavailableError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.mark.parametrize("step", ["ready", "repaired"])
def test_soft_roce_devices_are_ready(steps, step):
    output, code = steps[step]
    assert re.fullmatch(rf"railwright preflight 4 rails ready: {READY}", output.strip()), output
    assert code == 0
    assert steps["device-link"][1] != 0, "a virtual device has no folder of verbs below its device"


@pytest.mark.parametrize(
    ("step", "problems"),
    [
        ("small-mtu", [f"rail{rail} mlx5_{rail}: net{rail + 1} has MTU 9000, less than 9100" for rail in range(4)]),
        ("set-down", ["rail1 mlx5_1: interface net2 is administratively down"]),
        ("no-address", ["rail2 mlx5_2: net3 has no address"]),
        (
            "no-link-and-no-device",
            [
                "rail2 mlx5_2: device not found (found: mlx5_0, mlx5_1, mlx5_3)",
                "rail3 mlx5_3: port 1 is DOWN",
                "rail3 mlx5_3: interface net4 has no link (lowerlayerdown)",
            ],
        ),
    ],
)
def test_each_problem_of_a_rail_is_named_and_no_other(steps, step, problems):
    output, code = steps[step]
    assert code == 1
    assert re.findall(r"rail\d mlx5_\d: (?:[^:,(]|\([^)]*\)|, less)+", output) == problems


def test_devices_of_another_network_namespace_are_missed(steps):
    assert steps["exclusive"] == ("", 0)
    output, code = steps["hidden"]
    assert code == 1
    for rail in range(4):
        assert f"rail{rail} mlx5_{rail}: device not found (found: none)" in output
    assert "rdma system" in output


@pytest.mark.parametrize("device", [f"mlx5_{rail}" for rail in range(4)])
def test_bytes_are_written_over_the_devices_that_nccl_ib_hca_names(steps, device):
    output, code = steps[f"write-{device}"]
    assert code == 0, output
    assert re.search(rf"Device\s+: {device}\n", output)
    peaks = re.findall(r"^ 4096\s+20\s+([\d.]+)\s+[\d.]+", output, re.MULTILINE)  # a stall rounds the average to 0
    assert len(peaks) == 1
    assert float(peaks[0]) > 0


def test_soft_iwarp_device_is_ready_for_erdma(steps):
    output, code = steps["iwarp"]
    assert code == 0, output
    assert re.fullmatch(r"railwright preflight 1 rail ready: rail0 erdma_0( .*)?", output.strip()), output
    assert steps["iwarp-device-link"][1] != 0, "a virtual device has no folder of verbs below its device"


def test_soft_iwarp_device_lacks_a_gid_for_roce(steps):
    output, code = steps["iwarp-as-roce"]
    assert code == 1
    assert "rail0 erdma_0: no RoCE v2 GID of net1 (192.168.2.9" in output


def test_bytes_are_written_over_a_soft_iwarp_device(steps):
    output, code = steps["write-erdma_0"]
    assert code == 0, output
    assert re.search(r"Device\s+: erdma_0\n", output)
    assert "Transport type : IW" in output
    assert len(re.findall(r"^ 4096\s+20\s+[\d.]+\s+[\d.]+", output, re.MULTILINE)) == 1
