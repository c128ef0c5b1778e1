"""A ConfigMap with an invalid policy is rejected with all its errors."""

import asyncio
import json

import admitting
import pytest

from railwright.cluster import policies as reading
from webhook import policy_validation

GOOD = (admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text()
BAD = "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f: {transport: rocee}\ncolour: red\n"


async def read(text: str, _seconds: float):
    return reading.read(text)


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
    checking = policy_validation.Validator(read)
    return json.loads(asyncio.run(checking.handle(json.dumps(body).encode(), "", *cluster)).body)["response"]


def test_a_good_policy_is_allowed():
    assert answer({"policy.yaml": GOOD}) == {"uid": "u", "allowed": True}


def test_a_policy_with_a_kind_is_allowed_with_a_warning():
    response = answer({"policy.yaml": f"kind: FabricPolicy\n{GOOD}"})
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("PolicyKindIgnored: the key kind is ignored")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_an_invalid_policy_is_refused_with_line_and_path_of_every_error(operation):
    response = answer({"policy.yaml": BAD}, operation=operation)
    assert not response["allowed"]
    message = response["status"]["message"]
    assert "line 3: fabrics.f.transport" in message
    assert "line 4:" in message
    assert "colour" in message
    assert response["status"]["code"] == 400


@pytest.mark.parametrize("data", [None, {}, {"other": GOOD}])
def test_a_config_map_without_the_key_is_refused(data):
    assert "key policy.yaml is missing" in answer(data)["status"]["message"]


def test_other_config_maps_and_one_that_is_being_deleted_are_ignored():
    assert answer({"policy.yaml": BAD}, deletionTimestamp="2026-11-23T00:00:00Z")["allowed"]
    assert answer({"policy.yaml": BAD}, name="other")["allowed"]
    assert answer({"policy.yaml": BAD}, namespace="other")["allowed"]


def test_errors_beyond_the_limit_are_counted_and_none_is_truncated():
    text = BAD + "".join(f"unknown{number}: 1\n" for number in range(2000))
    lines = answer({"policy.yaml": text})["status"]["message"].splitlines()
    shown = [line for line in lines if line.startswith("line ")]
    assert 50 < len(shown) < 200
    total = int(lines[0].split(" error")[0].rpartition(" ")[2])
    assert lines[-1] == f"and {total - len(shown)} more; correct these first"
    assert len("\n".join(lines)) < 17 * 1024


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
            (NETWORKS, None),
            "PolicyResourceUnset",
            "no device is requested for rail0, rail1, rail2, rail3 and 12 more: neither",
        ),
        (
            rails(2),
            ({}, None),
            "PolicyNetworkMissing",
            "NetworkAttachmentDefinition prod/lan0, prod/lan1 does not exist, so pods with rail0, ",
        ),
        (
            rails(2, ", resource: x.y/other"),
            (POOLS, None),
            "PolicyResourcesDiffer",
            "rail0 has resource x.y/other, but its network prod/lan0 ",
        ),
        (
            rails(2),
            (POOLS, frozenset({"cpu"})),
            "PolicyResourceNotOffered",
            "no node offers x.y/vf now, so pods stay Pending; check the",
        ),
    ],
)
def test_shortcomings_of_a_valid_policy_are_reported_once_per_fabric(data, cluster, code, expected):
    response = answer(data, cluster=cluster)
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"{code}: fabrics.f.rails: {expected}")


CLAIMED = {
    "policy.yaml": rails(2, ", claim: {value: @}")["policy.yaml"].replace("@", "x.y/r0", 1).replace("@", "x.y/r1")
    + "    claims: {deviceClass: sriov, driver: sriov-multus}\n"
}


@pytest.mark.parametrize(
    ("data", "cluster"),
    [
        (rails(2), ()),
        (rails(2), (None, None)),
        (rails(2), (POOLS, frozenset({"x.y/vf"}))),
        (rails(2, ", resource: x.y/vf"), (NETWORKS, frozenset({"x.y/vf"}))),
        ({"policy.yaml": rails(2)["policy.yaml"] + "    mounts: {devInfiniband: true}\n"}, (NETWORKS, frozenset())),
        (CLAIMED, (POOLS, frozenset())),
        (CLAIMED, (NETWORKS, frozenset())),
        ({"policy.yaml": HEAD.replace("roce", "tcp").replace("    rails:\n", "")}, ({}, frozenset())),
    ],
)
def test_a_policy_without_known_shortcomings_is_allowed_without_warnings(data, cluster):
    assert answer(data, cluster=cluster) == {"uid": "u", "allowed": True}
