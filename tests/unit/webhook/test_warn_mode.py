"""Mode `warn`: no pod is changed or rejected; warnings and metrics report the changes of mode `enforce`."""

import json

import admitting
import jsonpatch
import pytest
import working
from admitting import build_facts, fabric, gpus, pod

from railwright.fabric import intent
from webhook import pods

MORE = "    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n"
BY_POLICY = fabric(MORE, top="mode: warn\n")
ENFORCED = fabric(MORE)


def answer(tree, by, at=None):
    reply = pods.answer_review(admitting.review(tree), by, lambda namespace: at or build_facts(namespace))
    response = json.loads(reply.body)["response"]
    return reply, response, jsonpatch.apply_patch(tree, admitting.decode_operations(response))


def test_in_mode_warn_a_pod_is_admitted_unchanged_with_a_warning_that_lists_the_changes():
    reply, response, after = answer(pod(gpus(8)), BY_POLICY)
    assert after == pod(gpus(8))
    assert (reply.outcome, reply.fabric, reply.role) == ("would-patch", "f", "worker")
    (warning,) = response["warnings"]
    assert warning.startswith("WouldInject: the policy is in mode warn, so nothing is changed; ")
    assert warning.endswith("fabric f would add networks, devices, security.IPC_LOCK, 1 mount, 4 variables")
    assert response["auditAnnotations"] == {"fabric": "f", "role": "worker", "mode": "warn"}


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        (pod(gpus(8), annotations={"railwright.io/rails": "9"}), "annotation"),
        (pod(gpus(8), annotations={"railwright.io/skip": "nothing"}), "annotation"),
        (pod(gpus(8), label="rocee"), "unknown-fabric"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_in_mode_warn_a_pod_that_enforcing_would_reject_is_admitted_with_the_reason(tree, code):
    reply, response, after = answer(tree, BY_POLICY)
    assert response["allowed"]
    assert (reply.outcome, reply.reason) == ("would-refuse", "")
    (warning,) = response["warnings"]
    assert warning.startswith("WouldReject: ")
    assert f"({code})" in warning
    assert after == tree


def test_in_mode_warn_a_pod_is_admitted_while_its_namespace_is_not_cached():
    tree = pod(gpus(8), label=None)
    at = build_facts(namespace_labels=None, watched=True)
    assert not answer(tree, ENFORCED, at)[1]["allowed"]
    reply, response, _ = answer(tree, BY_POLICY, at)
    assert (response["allowed"], reply.outcome) == (True, "would-refuse")
    assert "(namespace-unknown)" in response["warnings"][0]


def test_in_mode_warn_lint_findings_begin_with_if_enforced():
    tree = pod(gpus(8, env=[{"name": "NCCL_IB_HCAS", "value": "mlx5"}]))
    warnings = answer(tree, BY_POLICY)[1]["warnings"]
    assert any(line.startswith("N0") and ": if enforced: container c: NCCL_IB_HCAS" in line for line in warnings)


# --- workloads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Job.batch", "Job.batch.volcano.sh", "LeaderWorkerSet.leaderworkerset.x-k8s.io"])
def test_in_mode_warn_a_workload_is_admitted_unchanged_with_a_warning(kind):
    row = working.get_kind(kind)
    for annotations, code in (({}, "WouldInject"), ({"railwright.io/rails": "9"}, "WouldReject")):
        tree = working.build_workload(row, working.build_template(gpus(8), annotations=annotations), label="f")
        response = working.get_response(working.review(row, tree), BY_POLICY)
        assert response["allowed"]
        assert "patch" not in response
        assert any(line.startswith(f"{code}: ") for line in response["warnings"])
        assert response["auditAnnotations"] == {"mode": "warn"}


def test_in_mode_warn_applying_the_manifest_of_an_injected_job_again_changes_nothing():
    row = working.get_kind("Job.batch")
    tree = working.build_workload(row, working.build_template(gpus(8), label="f"))
    stored = working.apply_patch(row, tree, ENFORCED)
    response = working.get_response(working.review(row, tree, operation="UPDATE", oldObject=stored), BY_POLICY)
    after = jsonpatch.apply_patch(tree, admitting.decode_operations(response))
    assert after["spec"] == stored["spec"]


# --- after admission ------------------------------------------------------------------------------------------


def test_in_mode_warn_placement_covers_only_injected_pods():
    unchanged, injected = admitting.decode_pod(pod(gpus(8))), admitting.admit_pod(pod(gpus(8)), ENFORCED)
    assert intent.find_fabric(unchanged, BY_POLICY.document) == ("", None)
    assert intent.find_fabric(unchanged, ENFORCED.document)[0] == "f"
    assert intent.find_fabric(admitting.decode_pod(injected), BY_POLICY.document)[0] == "f"
