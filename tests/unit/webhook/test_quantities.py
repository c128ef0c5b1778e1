"""Any quantity in a pod or workload gets an answer, however large its number is."""

import json

import admitting
import pytest
import tables
import working
from admitting import fabric, gpus, pod

from railwright.fabric.workloads import registry
from webhook import pods, response_cache

RESOURCE = "nvidia.com/mlx5_0"
POLICY = fabric("    mounts: {sharedMemory: 1Gi}\n    resolve: always\n")
LARGEST = 2**63 - 1  # Kubernetes caps every quantity there
ENORMOUS = ["1e21", "100Ei", str(2**64), str(2**63), "1e40", "1e41", "1e99999", "+10E", 10**21, 2**64, 1e300, "9" * 64]
TINY = ["1n", "1e-40", "1e-99999", "0.000000000000000000001", 1e-300]


def container(resource: str, part: str, amount: object, other: object) -> dict:
    asked = {"nvidia.com/gpu": "8", "cpu": other, resource: amount}
    parts = ("limits", "requests") if part == "both" else (part,)
    return {"name": "c", "image": "i", "resources": dict.fromkeys(parts, asked)}


def admit(tree: dict) -> dict:
    """Return the response to a pod's review, requested twice as for two pods of a gang."""
    remembered = response_cache.ResponseCache()
    body = admitting.review(tree, namespace="prod")
    first, second = (
        pods.answer_review(body, POLICY, lambda _: admitting.build_facts(version=1), remembered).body for _ in range(2)
    )
    assert first == second
    response: dict = json.loads(first)["response"]
    return response


@pytest.mark.parametrize(
    ("row", "amount"),
    tables.pair(registry.INJECTED_KINDS, ENORMOUS),
    ids=lambda value: getattr(value, "display_name", None),
)
def test_an_enormous_quantity_in_a_workload_is_kept_and_its_request_is_capped_like_by_kubernetes(row, amount):
    template = working.build_template(container(RESOURCE, "limits", amount, "1"), label="f")
    tree = working.build_workload(row, template, name="Worker")
    response = working.get_response(working.review(row, tree), POLICY)
    assert response["allowed"], response
    after = working.get_container(row, working.apply_patch(row, tree, POLICY))["resources"]
    assert after["limits"][RESOURCE] == amount
    assert after["requests"][RESOURCE] == str(LARGEST)


def test_a_pod_with_an_enormous_or_tiny_quantity_is_injected():
    for amount in (*ENORMOUS, *TINY):
        assert admit(pod(container(RESOURCE, "limits", amount, amount)))["patchType"] == "JSONPatch", amount


def test_a_pod_with_a_number_beyond_64_bits_is_allowed():
    tree = pod(gpus(8, securityContext={"runAsUser": 10**30}), securityContext={"runAsUser": -(10**30)})
    assert admit(tree)["allowed"]
    template = {"metadata": {"labels": tree["metadata"]["labels"]}, "spec": tree["spec"]}
    row = working.get_kind("Job.batch.volcano.sh")
    assert working.get_response(working.review(row, working.build_workload(row, template)), POLICY)["allowed"]
