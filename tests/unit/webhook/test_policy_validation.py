"""A ConfigMap with an invalid policy is rejected with all its errors."""

import asyncio
import json

import admitting
import pytest
import yaml

from railwright.cluster import policies as reading
from webhook import policy_validation, reviews

GOOD = (admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text()
BAD = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics:\n  f: {transport: rocee}\ncolour: red\n"


async def read(text: str, _seconds: float):
    return reading.read(text)


NAME = {"name": "railwright-policy", "namespace": "railwright-system"}


def review(group: str, version: str, kind: str, operation: str = "UPDATE", **obj: object) -> bytes:
    """Return the review of an object, with its metadata in `metadata`."""
    request = {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": kind},
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"]["namespace"],
        "operation": operation,
        "object": obj,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def validate(body: bytes, cluster: tuple = (), **known: bool) -> dict:
    checking = policy_validation.Validator(read)
    return json.loads(asyncio.run(checking.handle(body, "", *cluster, **known)).body)["response"]


def answer(data: dict | None, *, cluster: tuple = (), has_resource: bool = False, **metadata: str) -> dict:
    body = review("", "v1", "ConfigMap", metadata=NAME | metadata, data=data)
    return validate(body, cluster, has_resource=has_resource)


def test_a_good_policy_is_allowed():
    assert answer({"policy.yaml": GOOD}) == {"uid": "u", "allowed": True}


def test_a_config_map_without_effect_is_allowed_with_a_warning_that_names_the_object_in_force():
    response = answer({"policy.yaml": GOOD}, has_resource=True)
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("PolicyOverridden: FabricPolicy railwright-system/railwright-policy is in force")
    assert "PolicyOverridden" in answer({"policy.yaml": GOOD}, has_resource=True, cluster=({}, None))["warnings"][0]
    assert not answer({"policy.yaml": BAD}, has_resource=True)["allowed"]
    assert "warnings" not in answer({"policy.yaml": GOOD}, name="other", has_resource=True)


def test_an_invalid_policy_is_refused_with_line_and_path_of_every_error():
    response = answer({"policy.yaml": BAD})
    assert not response["allowed"]
    message = response["status"]["message"]
    assert "line 4: fabrics.f.transport" in message
    assert "line 5:" in message
    assert "colour" in message
    assert response["status"]["code"] == 400


@pytest.mark.parametrize("data", [None, {}, {"other": GOOD}])
def test_a_config_map_without_the_key_is_refused(data):
    assert "key policy.yaml is missing" in answer(data)["status"]["message"]


def test_other_config_maps_are_ignored():
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


HEAD = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics:\n  f:\n    transport: roce\n    rails:\n"


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


def review_resource(spec: dict | None, operation: str = "UPDATE", version: str = "v1alpha1", **metadata: str) -> bytes:
    own = {} if spec is None else {"spec": spec}
    return review(
        "railwright.io", version, "FabricPolicy", operation, metadata=NAME | {"generation": 2} | metadata, **own
    )


def answer_resource(spec: dict | None, *, cluster: tuple = (), **more: str) -> dict:
    return validate(review_resource(spec, **more), cluster, has_resource=True)


BAD_SPEC = {"fabrics": {"f": {"transport": "rocee"}}, "colour": "red", "defaultFabric": "g"}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_resource_is_refused_with_every_error_and_its_path_in_the_spec(operation):
    response = answer_resource(BAD_SPEC, operation=operation)
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    first, *others = response["status"]["message"].splitlines()
    assert first == "FabricPolicy railwright-system/railwright-policy: 3 errors in spec:"
    assert [line.split(": ")[0] for line in others] == ["spec.colour", "spec.defaultFabric", "spec.fabrics.f.transport"]


def test_a_good_resource_is_allowed_with_the_same_warnings():
    spec = yaml.safe_load(rails(2)["policy.yaml"])
    response = answer_resource(spec, cluster=({}, None))
    assert response["allowed"]
    assert response["warnings"] == answer(rails(2), cluster=({}, None))["warnings"]


def test_a_resource_without_a_spec_is_refused():
    assert "spec.fabrics: is missing" in answer_resource(None)["status"]["message"]


def test_other_resources_and_those_that_are_being_deleted_are_ignored():
    assert answer_resource(BAD_SPEC, name="other")["allowed"]
    assert answer_resource(BAD_SPEC, namespace="other")["allowed"]
    assert answer_resource(BAD_SPEC, deletionTimestamp="2026-11-23T00:00:00Z")["allowed"]


def test_a_resource_of_another_version_is_malformed():
    expected = "request.kind is 'railwright.io/v2/FabricPolicy'; this path takes railwright.io/v1alpha1 FabricPolicy"
    with pytest.raises(reviews.MalformedError, match=expected):
        asyncio.run(policy_validation.Validator(read).handle(review_resource({}, version="v2")))
