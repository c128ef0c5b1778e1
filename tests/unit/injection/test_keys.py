"""Warnings about misspelt and misplaced keys of railwright."""

import json

import admitting
import pytest
import working
from admitting import build_facts, fabric, list_messages, plan_pod, pod
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import names, views
from railwright.fabric.injection import keys, plan
from webhook import pods, reviews

JOBSET, VOLCANO = working.get_kind("JobSet.jobset.x-k8s.io"), working.get_kind("Job.batch.volcano.sh")
BY = fabric()
OURS = "railwright.io/"


def warnings(labels: dict | None = None, annotations: dict | None = None) -> tuple[str, ...]:
    return list_messages(plan_pod(pod(labels=labels, annotations=annotations), BY))


@pytest.mark.parametrize(
    ("kind", "written", "meant"),
    [
        ("label", "rail", "annotation railwright.io/rails"),
        ("annotation", "Rails", "annotation railwright.io/rails"),
        ("label", "rail-count", "annotation railwright.io/rails"),
        ("annotation", "skips", "annotation railwright.io/skip"),
        ("label", "container", "annotation railwright.io/containers"),
        ("annotation", "delivrey", "annotation railwright.io/delivery"),
        ("label", "fabrics", "label railwright.io/fabric"),
        ("annotation", "fabirc", "label railwright.io/fabric"),
    ],
)
def test_a_misspelt_key_is_reported_with_the_intended_one(written, meant, kind):
    (warning,) = warnings(**{f"{kind}s": {OURS + written: "2"}})
    assert warning == (f"{kind} {OURS}{written} '2' has no effect: railwright has no such key; did you mean {meant}?")


NOWHERE = (
    "railwright has no such key; the keys of pods are label railwright.io/fabric and annotations railwright.io/rails, "
    "containers, skip, delivery, segment"
)


MISPLACED = {
    ("annotation", "zzz"): NOWHERE,
    ("annotation", "fabric"): "railwright reads it as a label; move it there",
    ("annotation", "uninjected"): "railwright reads it as a label of the namespace; move it there",
    ("label", "uninjected"): "railwright reads it as a label of the namespace; move it there",
    ("label", "injection"): "only railwright writes it, as an annotation; remove it",
    ("label", "rails"): "railwright reads it as an annotation; move it there",
    ("label", "containers"): "railwright reads it as an annotation; move it there",
    ("label", "skip"): "railwright reads it as an annotation; move it there",
    ("label", "delivery"): "railwright reads it as an annotation; move it there",
}


def test_a_key_in_the_wrong_place_is_reported_with_the_right_place():
    for (kind, key), reason in MISPLACED.items():
        (warning,) = warnings(**{f"{kind}s": {OURS + key: "1"}})
        assert warning == f"{kind} {OURS}{key} '1' has no effect: {reason}"


def test_a_misplaced_copy_of_a_correct_key_causes_no_warning():
    good = {OURS + "rails": "1", OURS + "skip": "preflight", OURS + "delivery": "env", OURS + "containers": "c"}
    assert warnings(annotations=good) == ()
    assert warnings(labels={OURS + "rails": "1"}, annotations={**good, OURS + "fabric": "f"}) == ()
    assert len(warnings(labels={OURS + "rails": "2"}, annotations=good)) == 1
    other = {"example.com/rails": "1", "railwright.io.example/rail": "1", "rails": "1"}
    assert warnings(labels=other, annotations=other) == ()


def test_a_misspelt_fabric_label_that_opts_no_pod_in_is_reported():
    tree = pod(label=None)
    tree["metadata"]["labels"] = {OURS + "fabirc": "f"}
    outcome = plan_pod(tree, BY)
    assert outcome == plan.NotOptedIn(outcome.warnings)
    assert len(list_messages(outcome)) == 1
    body = admitting.review(tree, namespace="prod")
    response = json.loads(pods.answer_review(body, BY, lambda _: build_facts()).body)["response"]
    assert response["allowed"]
    assert response["warnings"] == [f"KeyWithoutEffect: {list_messages(outcome)[0]}"]
    assert "patch" not in response


# --- templates and workloads --------------------------------------------------------------------------------


def list_warnings(row, tree: dict, **request) -> list[str]:
    return working.get_response(working.review(row, tree, **request), BY).get("warnings", [])


def test_a_typo_in_a_template_is_reported_with_its_place():
    tree = working.build_workload(
        VOLCANO, working.build_template(label="f", annotations={OURS + "skips": "env"}), name="w"
    )
    (warning,) = list_warnings(VOLCANO, tree)
    assert warning.startswith(
        "KeyWithoutEffect: spec.tasks[w].template: annotation railwright.io/skips 'env' has no effect: "
    )


@pytest.mark.parametrize("key", ["rails", "containers", "skip", "delivery"])
def test_a_pod_annotation_on_a_workload_is_reported_with_its_place_in_the_template(key):
    tree = working.build_workload(VOLCANO, working.build_template(), name="w", label="f")
    tree["metadata"]["annotations"] = {OURS + key: "2"}
    (warning,) = list_warnings(VOLCANO, tree)
    assert warning == (
        f"KeyWithoutEffect: annotation {OURS}{key} '2' of the Job has no effect: railwright reads it as an annotation "
        "of pods; move it to the annotations of the pod template (spec.tasks[w].template.metadata)"
    )
    tree["spec"]["tasks"][0]["template"]["metadata"] = {
        "annotations": {OURS + key: "c" if key == "containers" else "1"}
    }
    assert key in {"skip", "delivery"} or list_warnings(VOLCANO, tree) == []


def test_keys_between_the_workload_and_its_template_are_reported_too():
    tree = working.build_workload(JOBSET, working.build_template(), name="w", label="f")
    tree["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": {OURS + "rails": "1"}}
    (warning,) = list_warnings(JOBSET, tree)
    assert warning.startswith(
        "KeyWithoutEffect: spec.replicatedJobs[w].template: annotation railwright.io/rails '1' has no effect"
    )
    assert "(spec.replicatedJobs[w].template.spec.template.metadata)" in warning


def test_an_update_that_leaves_the_keys_as_they_were_causes_no_warning():
    row = working.get_kind("Deployment.apps")
    tree = working.build_workload(row, working.build_template(), label="f")
    tree["metadata"]["annotations"] = {OURS + "rails": "2"}
    assert list_warnings(row, tree, operation="UPDATE", oldObject=tree) == []
    revised = {
        **tree,
        "metadata": {**tree["metadata"], "resourceVersion": "7", "labels": {OURS + "fabric": "f", "x": "y"}},
    }
    assert list_warnings(row, revised, operation="UPDATE", oldObject=tree) == []
    before = {**tree, "metadata": {**tree["metadata"], "annotations": {}}}
    assert len(list_warnings(row, tree, operation="UPDATE", oldObject=before)) == 1


# --- bounds -------------------------------------------------------------------------------------------------


def test_warnings_about_wrong_keys_are_limited_so_that_others_fit():
    shown = warnings(annotations={f"{OURS}k{number}": "x" * 50 for number in range(2000)})
    assert len(shown) == 4
    assert shown[-1] == "and more keys without effect; fix these first to see them"
    assert all(len(warning) <= reviews.MAX_WARNING for warning in shown)


@given(st.text(max_size=70), st.text(max_size=40), st.booleans())
def test_a_key_without_effect_causes_one_short_warning(key, value, label):
    metadata = views.ObjectMeta(**{"labels_or_none" if label else "annotations_or_none": {OURS + key: value}})
    reasons = keys.check_pod(metadata)
    assert len(reasons) <= 1
    assert all(len(reason.line) <= reviews.MAX_WARNING + 8 * len(value + key) for reason in reasons)
    right = {names.FABRIC} if label else {names.RAILS, names.CONTAINERS, names.SKIP, names.DELIVERY}
    written = set() if label else {names.INJECTION, names.NCCL_CONF}
    assert bool(reasons) == (OURS + key not in right | written)


def test_a_misspelt_domain_of_a_key_is_reported():
    for domain in ("railwright", "railwrite.io", "ralwright.io", "railwright.com", "Railwright.io"):
        (warning,) = keys.check_pod(views.ObjectMeta(labels_or_none={f"{domain}/fabric": "roce"}))
        assert "did you mean label railwright.io/fabric?" in warning.text


def test_keys_of_other_systems_cause_no_warning():
    for key in ("railway.app/fabric", "example.com/fabric", "railwrite.io/team", "fabric"):
        assert keys.check_pod(views.ObjectMeta(labels_or_none={key: "x"}, annotations_or_none={key: "x"})) == ()


# --- keys in the networks annotation -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("guid", "did you mean infiniband-guid?"),
        ("default_route", "did you mean default-route?"),
        ("macAddress", "did you mean mac?"),
        ("description", "remove it"),
        ("", "remove it"),
        ("\x1b" + "x" * 5000, "remove it"),
    ],
)
def test_a_key_that_multus_does_not_know_is_named_with_its_entry(key, fix):
    networks = json.dumps([{"name": "lan2"}, {"name": "lan3", key: "1", "other": "2"}])
    (warning,) = warnings(annotations={names.NETWORKS: networks})
    assert warning.startswith(f"annotation {names.NETWORKS}: entry 2: key {key[:50]!r}"[:-1])
    assert warning.endswith(f"has no effect: Multus has no such key; {fix}")
    assert warning.isprintable()
    assert len(warning) <= reviews.MAX_WARNING


def test_keys_of_multus_cause_no_warning_in_any_letter_case():
    known_keys = {"name": "a", "Namespace": "b", "IPS": ["10.0.0.1"], "infiniband-guid": "02:00:00:00:00:00:00:01"}
    for networks in (json.dumps([known_keys]), "lan2,lan3", '[{"guid":', '{"guid": 1}', '[{"guid": 1}]'):
        assert keys.check_pod(views.ObjectMeta(annotations_or_none={names.NETWORKS: networks})) == ()
