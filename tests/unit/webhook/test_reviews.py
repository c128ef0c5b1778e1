"""Decoding and encoding of AdmissionReviews as the API server sends and accepts them."""

import base64
import json

import msgspec
import pytest
from admitting import WIRE
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import views
from railwright.fabric.reasons import reason as reasons
from webhook import reviews

DECODER, POD = (msgspec.json.Decoder(reviews.Review[views.Pod]), reviews.GroupVersionKind("", "v1", "Pod"))


def read(body: bytes) -> reviews.Request[views.Pod]:
    return reviews.decode_request(DECODER, body, POD)


def read_captured(name: str) -> bytes:
    return (WIRE / f"admission-{name}.json").read_bytes()


def review(**request) -> dict:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    base = {"uid": "u-1", "kind": kind, "operation": "CREATE", "namespace": "prod", "object": {"metadata": {}}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": base | request}


def raw(tree: object) -> bytes:
    return json.dumps(tree).encode()


def sent(answered: reviews.Answer, uid: str = "u-1") -> dict:
    answer = json.loads(answered.address_to(reviews.Request(uid=uid)).body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return answer["response"]


@pytest.mark.parametrize("name", ["pods-bench", "pods-replicaset-controller"])
def test_captured_pod_reviews_decode_to_the_sent_values(name):
    body = read_captured(name)
    there = json.loads(body)["request"]
    request = read(body)
    assert (request.uid, request.operation, request.namespace) == (there["uid"], "CREATE", there["namespace"])
    assert request.name == there.get("name", "")
    assert request.dry_run is False
    assert request.sub_resource == ""
    given_containers = [container["name"] for container in there["object"]["spec"]["containers"]]
    assert [container.name for container in request.object.spec.containers] == given_containers
    assert dict(request.object.metadata.labels) == there["object"]["metadata"]["labels"]


MALFORMED = {
    "a list": (b"[]", "array"),
    "another kind of document": (raw({"apiVersion": "v1", "kind": "Pod"}), "expected AdmissionReview"),
    "no kind": (raw({}), "expected AdmissionReview"),
    "v1beta1": (raw(review() | {"apiVersion": "admission.k8s.io/v1beta1"}), "admissionReviewVersions: [v1]"),
    "a kind that is no text": (raw(review() | {"kind": 7}), "$.kind"),
    "no uid": (raw(review(uid="")), "uid"),
    "an object of another kind": (
        raw(review(kind={"group": "apps", "version": "v1", "kind": "Deployment"})),
        "request.kind is 'apps/v1/Deployment'; this path takes v1 Pod",
    ),
    "no kind of object": (raw(review(kind=None)), "kind"),
    "an object of another shape": (raw(review(object={"spec": {"containers": 1}})), "$.request.object.spec.containers"),
    "a label that is no text": (raw(review(object={"metadata": {"labels": {"a": 1}}})), "labels"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_body_without_a_pod_review_is_malformed_with_the_cause(what):
    body, why = MALFORMED[what]
    with pytest.raises(reviews.MalformedError, match=r"\S") as error:
        read(body)
    assert why in str(error.value)
    assert len(str(error.value)) < 400, "a reason never repeats the body"


def test_an_answer_repeats_the_uid_and_has_no_patch_without_operations():
    assert sent(reviews.Answer(), uid='a"b\\c') == {"uid": 'a"b\\c', "allowed": True}


def test_a_patch_has_its_type_and_decodes_to_the_operations():
    operations = [{"op": "add", "path": "/metadata/annotations", "value": {"ü": "\u2028"}}]
    response = sent(reviews.Answer(operations=operations))
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"], validate=True)) == operations


def test_a_rejection_has_code_and_message_but_no_patch():
    refused = reviews.Answer(
        allowed=False, code=403, message="no", operations=[{"op": "add", "path": "/a", "value": 1}]
    )
    assert sent(refused) == {"uid": "u-1", "allowed": False, "status": {"code": 403, "message": "no"}}


@given(st.lists(st.text(max_size=600), max_size=40))
def test_warnings_fit_the_limits_of_the_api_server(warnings):
    limited = reviews.limit_warnings([reasons.Reason("Code", warning) for warning in warnings])
    assert len(limited) <= 10
    assert all(len(warning) <= 256 for warning in limited)
    assert sum(map(len, limited)) <= 4096
    assert len(warnings) > reviews.MAX_WARNINGS or len(limited) == len(warnings)


def test_eight_warnings_are_unchanged_and_the_number_of_others_is_stated():
    few = [reasons.Reason("Code", f"warning {index}") for index in range(reviews.MAX_WARNINGS)]
    assert reviews.limit_warnings(few) == [f"Code: warning {index}" for index in range(reviews.MAX_WARNINGS)]
    many = [reasons.Reason("Code", f"warning {index}") for index in range(20)]
    limited = reviews.limit_warnings(many)
    assert limited[:-1] == [warning.line for warning in many[: reviews.MAX_WARNINGS - 1]]
    assert limited[-1].startswith(f"MoreWarnings: and {20 - reviews.MAX_WARNINGS + 1} more warnings")
    long = [reasons.Reason("Code", "x" * 10_000)]
    assert len(msgspec.json.encode(reviews.limit_warnings(long))) == reviews.MAX_WARNING + 4


@pytest.mark.parametrize("problem", ["p", "p" * 500, "a; " * 200 + "b"])
def test_a_shortened_warning_keeps_its_beginning_and_its_fix(problem):
    warning = reasons.Reason("DevicesNotOffered", f"{problem}; correct the annotation, or ask the operator")
    (line,) = reviews.limit_warnings([warning])
    assert len(line) <= reviews.MAX_WARNING
    assert line.startswith("DevicesNotOffered: ")
    assert line.endswith("; correct the annotation, or ask the operator")
