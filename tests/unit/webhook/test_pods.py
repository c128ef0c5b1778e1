"""Reviews of pods: bytes in, bytes out, on captured reviews."""

import json

import admitting
import pytest
from admitting import cpu, fabric, gpus, pod, review

from railwright.fabric.reasons import codes
from webhook import pods, reviews

BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n")


def facts(namespace):
    return admitting.build_facts(namespace)


def answer(body: bytes, by=BY) -> dict:
    document = json.loads(pods.answer_review(body, by, facts).body)
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert document["response"]["uid"] == json.loads(body)["request"]["uid"]
    return document["response"]


def test_a_pod_that_did_not_opt_in_is_allowed_unchanged():
    body = (admitting.WIRE / "admission-pods-bench.json").read_bytes()
    assert answer(body).keys() == {"uid", "allowed"}


def test_the_rejection_of_an_unknown_fabric_lists_the_allowed_ones():
    response = answer(review(pod(label="g")))
    assert not response["allowed"]
    assert response["status"]["code"] == 403
    assert "allowed are f, default, none" in response["status"]["message"]
    (cause,) = response["status"]["details"]["causes"]
    assert cause == {"reason": "unknown-fabric", "message": response["status"]["message"]}
    assert "patch" not in response


def test_a_rejection_names_the_namespace_of_the_request_and_the_prefix_of_a_generated_name():
    tree = pod(label="g")
    tree["metadata"] = {"generateName": "train-", "labels": {"railwright.io/fabric": "g"}}
    assert "Pod webhook-bench/train-*: " in answer(review(tree))["status"]["message"]


@pytest.mark.parametrize(
    "request_", [{"operation": "UPDATE"}, {"operation": "DELETE", "object": None}, {"subResource": "status"}]
)
def test_only_the_creation_of_a_pod_is_patched(request_):
    tree = request_.pop("object", pod())
    assert answer(review(tree, **request_)).keys() == {"uid", "allowed"}


def test_without_a_policy_labelled_pods_are_rejected_and_unlabelled_ones_allowed():
    message = answer(review(pod()), None)["status"]["message"]
    assert "no policy in force yet: it may still be starting, so try again in a moment" in message
    assert "ask a cluster administrator to run `railwright check`" in message
    assert answer(review(pod(label=None)), None)["allowed"]
    assert answer(review(pod(label="none")), None)["allowed"]


def test_without_a_policy_an_opted_in_namespace_rejects_only_pods_with_accelerators():
    def find_opted_in_namespace(namespace):
        return admitting.build_facts(namespace, namespace_labels={"railwright.io/fabric": "f"})

    def is_allowed(tree: dict) -> bool:
        return json.loads(pods.answer_review(review(tree), None, find_opted_in_namespace).body)["response"]["allowed"]

    assert is_allowed(pod(cpu(resources={"limits": {"cpu": "1"}}), label=None))
    assert is_allowed(pod(gpus(0), label=None)), "with a policy a request of 0 does not count either"
    assert not is_allowed(pod(gpus(1), label=None))
    assert not is_allowed(pod(cpu(), label="f"))


@pytest.mark.parametrize("policy", [None, BY], ids=["without a policy", "with a policy"])
def test_a_pod_that_its_namespace_may_opt_in_is_rejected_until_the_namespace_is_cached(policy):
    def respond(tree: dict, **known) -> dict:
        at = {"watched": True, **known}
        return json.loads(pods.answer_review(review(tree), policy, lambda _: admitting.build_facts(**at)).body)[
            "response"
        ]

    rejected = respond(pod(label=None))
    assert not rejected["allowed"]
    assert "labels of namespace" in rejected["status"]["message"]
    assert "try again" in rejected["status"]["message"]
    unreadable = {"limits": {"nvidia.com/gpu": "many"}}
    assert not respond(pod(cpu(resources=unreadable), label=None))["allowed"]
    for without in (cpu(), gpus(0)):
        assert respond(pod(without, label=None))["allowed"], "no accelerator: the namespace decides nothing"
    assert "patch" in respond(pod(label="f")) or policy is None
    assert respond(pod(label="none"))["allowed"]
    assert respond(pod(label=None), watched=False)["allowed"], "a file tells all there is"
    assert respond(pod(label=None), namespace_labels={}) == {"uid": rejected["uid"], "allowed": True}


def test_audit_annotations_name_fabric_role_rails_and_the_number_of_changes():
    assert answer(review(pod()))["auditAnnotations"] == {
        "fabric": "f",
        "role": "worker",
        "rails": "rail0,rail1",
        "changes": str(len(admitting.plan_pod(pod(), BY).changes)),
    }


def test_audit_annotations_of_a_rejection_name_fabric_and_code_and_are_limited():
    response = answer(review(pod(annotations={"railwright.io/rails": "9"})))
    assert response["auditAnnotations"] == {"fabric": "f", "refused": "annotation"}
    assert answer(review(pod(label="\x1b" * 9999)))["auditAnnotations"]["fabric"] == "unknown"
    rails = [f"{{name: rail-{number}-{'x' * 50}, device: mlx5_{number}}}" for number in range(40)]
    policy = fabric(rails=f"[{', '.join(rails)}]")
    assert len(answer(review(pod()), policy)["auditAnnotations"]["rails"]) == 1024


def test_a_dry_run_of_a_pod_gets_the_same_answer():
    answer = pods.answer_review(review(pod(), dryRun=True), BY, facts)
    assert answer.dry_run
    assert answer.body == pods.answer_review(review(pod()), BY, facts).body


def test_the_owner_of_a_rejected_pod_gets_an_event_except_on_a_dry_run():
    tree = pod(label="g")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    tree["metadata"]["ownerReferences"] = [owner]
    refused = pods.answer_review(review(tree), BY, facts)
    assert (refused.owner.kind, refused.owner.name, refused.namespace) == ("Job", "train", "webhook-bench")
    assert pods.answer_review(review(tree, dryRun=True), BY, facts).owner is None
    assert pods.answer_review(review(pod(label="g")), BY, facts).owner is None, "it has none"


def test_a_creation_without_an_object_is_malformed():  # other malformed reviews: test_reviews.py
    with pytest.raises(reviews.MalformedError, match=r"request\.object is missing"):
        pods.answer_review(review(None), BY, facts)


MANY = [{"name": f"N{n}", "value": "v"} for n in range(10_000)]


@pytest.mark.parametrize("tree", [pod(gpus(8, env=MANY)), pod(gpus(8), annotations={"note": "," * 20_000})])
def test_the_rejection_of_a_pod_with_too_many_values_names_the_limit_and_the_fix(tree):
    answered = pods.answer_review(review(tree), BY, facts)
    response = json.loads(answered.body)["response"]
    assert not response["allowed"]
    assert answered.reason == codes.RejectionCode.TOO_LARGE
    message = response["status"]["message"]
    assert "the object has about 20" in message
    assert "limit is 10000 with label railwright.io/fabric: shorten its lists and annotations" in message
