"""A ConfigMap with an invalid policy is rejected with all its errors."""

import ipaddress
import json

import admitting
import pytest

from railwright.fabric.multus import ipam
from railwright.fabric.policy import shortcomings
from webhook import policy_validation

GOOD = (admitting.EXAMPLES / "360-infiniband" / "policy.yaml").read_text()
BAD = "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f: {transport: rocee}\ncolour: red\n"


NAME = {"name": "railwright-policy", "namespace": "railwright-system"}


def answer(data: dict | None, *, cluster: tuple = (), operation: str = "UPDATE", **metadata: str) -> dict:
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "name": metadata.get("name", "railwright-policy"),
        "namespace": metadata.get("namespace", "railwright-system"),
        "operation": operation,
        "object": {"metadata": NAME | metadata, "data": data},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.loads(
        policy_validation.answer_review(json.dumps(body).encode(), shortcomings.Cluster(*cluster)).answer.body
    )["response"]


def test_a_valid_policy_is_allowed():
    assert answer({"policy.yaml": GOOD}) == {"uid": "u", "allowed": True}


def test_a_lint_finding_in_env_of_the_policy_is_a_warning():
    text = HEAD.replace("roce", "tcp").replace("    rails:\n", '    env: {NCCL_IB_RETRY_CNT: "10"}\n')
    response = answer({"policy.yaml": text})
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert "env: NCCL_IB_RETRY_CNT=10: is out of range" in warning


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_an_invalid_policy_is_rejected_with_line_and_path_of_every_error(operation):
    response = answer({"policy.yaml": BAD}, operation=operation)
    assert not response["allowed"]
    message = response["status"]["message"]
    assert "line 3: fabrics.f.transport" in message
    assert "line 4:" in message
    assert "colour" in message
    assert response["status"]["code"] == 400


@pytest.mark.parametrize("data", [None, {}, {"other": GOOD}])
def test_a_policy_config_map_without_its_key_is_rejected(data):
    assert "key policy.yaml is missing" in answer(data)["status"]["message"]


def test_other_config_maps_and_a_policy_that_is_being_deleted_are_allowed_unchecked():
    assert answer({"policy.yaml": BAD}, deletionTimestamp="2026-11-23T00:00:00Z")["allowed"]
    assert answer({"policy.yaml": BAD}, name="other")["allowed"]
    assert answer({"policy.yaml": BAD}, namespace="other")["allowed"]


def test_the_first_policy_errors_are_listed_and_the_number_of_the_others_is_stated():
    text = BAD + "".join(f"unknown{number}: 1\n" for number in range(2000))
    first, *shown, last = answer({"policy.yaml": text})["status"]["message"].splitlines()
    assert all(line.startswith("line ") for line in shown)
    total = int(first.split(" error")[0].rpartition(" ")[2])
    assert last == f"and {total - len(shown)} more; correct these first"
    assert len("\n".join(shown)) < 17 * 1024


HEAD = "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f:\n    transport: roce\n    rails:\n"


def rails(count: int, more: str = "") -> dict:
    lines = "".join(f"    - {{name: rail{k}, network: prod/lan{k}{more}}}\n" for k in range(count))
    return {"policy.yaml": HEAD + lines}


NETWORKS = {("prod", f"lan{k}"): None for k in range(16)}
POOLS = dict.fromkeys(NETWORKS, "x.y/vf")


@pytest.mark.parametrize(
    ("data", "cluster", "code", "expected"),
    [
        (
            rails(16),
            (NETWORKS,),
            "RailWithoutResource",
            "no device is requested for rail0, rail1, rail2, rail3 and 12 more: neither",
        ),
        (
            rails(2),
            ({},),
            "NetworkMissing",
            "NetworkAttachmentDefinition prod/lan0, prod/lan1 does not exist, so pods with rail0, ",
        ),
        (
            rails(2, ", resource: x.y/other"),
            (POOLS,),
            "RailResourcesDiffer",
            "rail0 has resource x.y/other, but its network prod/lan0 ",
        ),
        (
            rails(2),
            (POOLS, None, {"nvidia.com/gpu"}),
            "DevicesNotOffered",
            "no node offers x.y/vf now, so pods stay Pending; check the",
        ),
    ],
)
def test_what_the_cluster_lacks_for_a_valid_policy_is_one_warning_for_each_fabric(data, cluster, code, expected):
    response = answer(data, cluster=cluster)
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"{code}: fabrics.f.rails: {expected}")


def test_accelerators_that_no_node_offers_are_a_warning():
    policy = {
        "policy.yaml": HEAD.replace("roce", "tcp").replace("    rails:\n", "") + "accelerators: [nvidia.com/gpus]\n"
    }
    response = answer(policy, cluster=({}, None, {"nvidia.com/gpu"}))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(
        "DevicesNotOffered: accelerators: no node offers nvidia.com/gpus now, so pods that request one stay Pending"
    )


@pytest.mark.parametrize(
    ("data", "cluster"),
    [
        (rails(2), ()),
        (rails(2), (None,)),
        (rails(2), (POOLS, None, {"nvidia.com/gpu", "x.y/vf"})),
        (rails(2, ", resource: x.y/vf"), (NETWORKS, None, {"nvidia.com/gpu", "x.y/vf"})),
        (
            {"policy.yaml": rails(2)["policy.yaml"] + "    mounts: {devInfiniband: true}\n"},
            (NETWORKS, None, {"nvidia.com/gpu"}),
        ),
        ({"policy.yaml": HEAD.replace("roce", "tcp").replace("    rails:\n", "")}, ({}, None, {"nvidia.com/gpu"})),
    ],
)
def test_a_policy_whose_needs_the_cluster_has_is_allowed_without_warnings(data, cluster):
    assert answer(data, cluster=cluster) == {"uid": "u", "allowed": True}


ROCE = HEAD + "    - {name: rail0, network: prod/lan0}\n    - {name: rail1, network: prod/lan1}\n"
LANS = dict.fromkeys((("prod", "lan0"), ("prod", "lan1")), "x.y/vf")


def subnet(*texts: str):
    return tuple(map(ipaddress.ip_network, texts))


@pytest.mark.parametrize(
    ("range_", "subnets", "warned"),
    [
        ("10.201.0.0/16", [subnet("10.200.1.0/24"), subnet("10.200.2.0/24")], True),
        ("10.200.0.0/16", [subnet("10.200.1.0/24"), subnet("10.200.2.0/24")], False),
        ("10.201.0.0/16", [subnet("10.200.1.0/24"), ()], False),
        ("fd00::/64", [subnet("10.200.1.0/24"), subnet("10.200.2.0/24")], True),
    ],
    ids=["elsewhere", "contains them", "one network states none", "other family"],
)
def test_an_address_range_without_addresses_of_the_networks_is_a_warning(range_, subnets, warned):
    text = ROCE + f'    nccl: {{addressRange: "{range_}"}}\n'
    cluster = (LANS, dict(zip(LANS, map(ipam.NetworkConfiguration, subnets), strict=True)))
    response = answer({"policy.yaml": text}, cluster=cluster)
    assert response["allowed"]
    assert [warning.partition(":")[0] for warning in response.get("warnings", ())] == ["AddressesDiffer"] * warned
    if warned and range_.startswith("10"):
        assert response["warnings"][0].startswith(
            "AddressesDiffer: fabrics.f.nccl.addressRange: 10.201.0.0/16 has no address of the rails' networks "
            "(prod/lan0 has 10.200.1.0/24, prod/lan1 has 10.200.2.0/24), so NCCL finds no GID there; "
        )


def test_a_number_of_gpus_per_node_that_no_node_has_is_a_warning():
    text = ROCE + "    gpusPerNode: 16\n"
    nodes = [{"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 8, "x.y/vf": 1}]
    cluster = (LANS, {}, {"nvidia.com/gpu", "x.y/vf"}, nodes)
    (warning,) = answer({"policy.yaml": text}, cluster=cluster)["warnings"]
    assert warning == (
        "GpusExceedNode: fabrics.f.gpusPerNode: 16, but nodes have 4, 8 of nvidia.com/gpu; set it to the number of "
        "GPUs of a node"
    )
    assert "warnings" not in answer({"policy.yaml": text.replace("16", "8")}, cluster=cluster)


def test_a_network_whose_cni_configuration_is_no_json_is_a_warning():
    configurations = dict.fromkeys(LANS, ipam.read_configuration('{"type": "macvlan",}'))
    (warning,) = answer({"policy.yaml": ROCE}, cluster=(LANS, configurations))["warnings"]
    assert warning.startswith(
        "NetworkInvalid: fabrics.f.rails: spec.config of NetworkAttachmentDefinition prod/lan0 is invalid (line 1, "
    )
    assert len(warning) <= 256
