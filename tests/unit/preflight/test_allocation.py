"""Compares the devices in a container with those allocated to its pod's claims (docs/injection.md#preflight)."""

import json

import pytest
import trees

from railwright.preflight import __main__ as preflight

FILE = "/etc/railwright/placement.json"
METADATA = "var/run/kubernetes.io/dra-device-attributes"
ROCE = ("--transport=roce", "--rail=rail0,interface=net1", "--rail=rail1,interface=net2", f"--allocation={FILE}")
LISTED = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}


def build_allocation(*numbers: int, **more: str) -> list[dict]:
    return [
        {
            "rail": f"rail{number}",
            "claim": "nics",
            "request": f"nic{number}",
            "device": f"pci-0000-{number}0-00-0",
            "rdmaDevice": f"mlx5_{number}",
            **more,
        }
        for number in numbers
    ]


def describe(number: int, *, rdma_device: str = "") -> dict:
    """Return a file of the driver (KEP-5304)."""
    values = {"dra.net/rdmaDevice": rdma_device or f"mlx5_{number}"}
    device = {
        "driver": "dra.net",
        "pool": "n",
        "name": f"pci-0000-{number}0-00-0",
        "attributes": {name: {"string": value} for name, value in values.items()},
        "networkData": {"interfaceName": f"net{number + 1}", "ips": ["192.168.2.7/24"]},
    }
    return {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "p-nics-x7k2p", "namespace": "train", "generation": 1},
        "podClaimName": "nics",
        "requests": [{"name": f"nic{number}", "devices": [device]}],
    }


@pytest.fixture
def run(tmp_path, capsys):
    def run_on(placement, *options: str, environment=None, files=None, raw: str | None = None) -> tuple[int, str]:
        root = trees.lay_out("roce", tmp_path / "roce")
        (root / "etc/railwright").mkdir(parents=True, exist_ok=True)
        text = raw if raw is not None else "" if placement is None else json.dumps({"node": "n", "devices": placement})
        (root / FILE[1:]).write_text(text)
        for path, content in (files or {}).items():
            (root / METADATA / path).parent.mkdir(parents=True)
            (root / METADATA / path).write_text(content)
        arguments = [f"--root={root}", *(options or ROCE)]
        code = preflight.main(arguments, LISTED if environment is None else environment)
        printed = capsys.readouterr()
        return code, (printed.out or printed.err).removeprefix("railwright preflight ").strip()

    return run_on


def path(number: int, kind: str = "resourceclaimtemplates") -> str:
    return f"{kind}/nics/nic{number}/dra.net-metadata.json"


def test_the_rails_are_those_of_the_claims(run):
    code, line = run(build_allocation(1, 0))
    assert (code, line) == (
        0,
        "2 rails ready: rail1 mlx5_1 192.168.3.7 GID 7 mtu 9000, rail0 mlx5_0 192.168.2.7 GID 7 mtu 9000",
    )


def test_a_missing_device_is_named_with_its_claim(run):
    code, line = run(build_allocation(0, 9), environment={"NCCL_IB_HCA": "=mlx5_0,mlx5_9"})
    assert code == 1
    assert "rail9 mlx5_9 (claim nics, request nic9, device pci-0000-90-00-0): device not found (found: mlx5_0" in line


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("=mlx5_0", "NCCL_IB_HCA: =mlx5_0 leaves out mlx5_1 (claim nics, request nic1, device pci-0000-10-00-0)"),
        ("=mlx5_0,mlx5_1,mlx5_2", "NCCL_IB_HCA: =mlx5_0,mlx5_1,mlx5_2 also selects mlx5_2, which no claim of the pod"),
        ("mlx5", "NCCL_IB_HCA: mlx5 also selects mlx5_2, mlx5_3, which no claim of the pod holds"),
        ("", "NCCL_IB_HCA: is not set, so NCCL also uses mlx5_2, mlx5_3, which no claim of the pod holds"),
        ("=not-written-at-binding", "NCCL_IB_HCA: was not written at binding: the claims' devices were not known"),
    ],
)
def test_a_list_that_differs_from_the_claims_is_a_problem(run, value, message):
    code, line = run(build_allocation(0, 1), environment={"NCCL_IB_HCA": value})
    assert code == 1
    assert message in line


@pytest.mark.parametrize("raw", ["", "{", "[]", "null", "[" * 100_000])
def test_a_missing_annotation_is_reported_as_a_missed_binding(run, raw):
    code, line = run(None, raw=raw)
    assert code == 1
    assert "allocation: is not known: the pod has no annotation railwright.io/placement" in line
    assert "delete the pod so that it is bound again" in line


@pytest.mark.parametrize("kind", ["resourceclaimtemplates", "resourceclaims"])
def test_the_drivers_files_agree(run, kind):
    """A driver writes one JSON object for each version of the API."""
    versions = [describe(0), describe(0) | {"apiVersion": "metadata.resource.k8s.io/v1alpha1"}]
    text = "\n".join(map(json.dumps, versions))
    code, line = run(build_allocation(0), environment={"NCCL_IB_HCA": "=mlx5_0"}, files={path(0, kind): text})
    assert code == 0, line


def test_another_device_by_the_driver_is_named_with_claim_and_request(run):
    files = {path(0): json.dumps(describe(1) | {"requests": [{**describe(1)["requests"][0], "name": "nic0"}]})}
    code, line = run(build_allocation(0, 1), files=files)
    assert code == 1
    assert "claim nics, request nic0: the driver gave pci-0000-10-00-0, but pci-0000-00-00-0 was allocated" in line


def test_a_renamed_rdma_device_is_a_problem(run):
    code, line = run(build_allocation(0, 1), files={path(0): json.dumps(describe(0, rdma_device="mlx5_7"))})
    assert code == 1
    assert "pci-0000-00-00-0 is RDMA device mlx5_7, but its ResourceSlice said mlx5_0" in line


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"requests": 1}', '{"requests": [1, {"name": "nic0", "devices": {}}]}',
     '{"requests": [{"name": "nic0", "devices": [{"attributes": [], "networkData": 3}]}]}'],
)  # fmt: skip
def test_a_file_of_an_unknown_form_alone_is_no_problem(run, text):
    code, line = run(build_allocation(0, 1, 2, 3), environment={"NCCL_IB_HCA": "mlx5"}, files={path(9): text})
    assert code == 0, line


def test_the_files_alone_give_the_rails_where_binding_was_missed(run):
    files = {path(number): json.dumps(describe(number)) for number in (0, 1)}
    code, line = run(None, files=files)
    assert code == 1
    assert "allocation: is not known" in line
    assert "no RDMA device left" not in line
