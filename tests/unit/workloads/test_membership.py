"""Gang and rank of a pod, by the labels that each framework writes (interface.md 7.1)."""

import msgspec
import pytest

from railwright.fabric import views
from railwright.fabric.workloads import membership


def pod(name="p-0", labels=None, annotations=None, spec=None, owner=None) -> views.Pod:
    metadata = {"name": name, "namespace": "ns", "labels": labels or {}, "annotations": annotations or {}}
    if owner:
        metadata["ownerReferences"] = [owner]
    return msgspec.convert({"metadata": metadata, "spec": spec or {}}, views.Pod)


GROUP = "scheduling.k8s.io/group-name"
VOLCANO = {GROUP: "job-1f"}


def test_the_first_label_or_owner_that_matches_names_the_gang():
    owner = {"kind": "ReplicaSet", "name": "rs", "uid": "u"}
    in_tree = {"schedulingGroup": {"podGroupName": "pg"}}  # the Job controller writes one for each Job
    for of, gang in (
        (pod(annotations=VOLCANO, labels={"volcano.sh/job-name": "job"}), "ns/job-1f"),
        (pod(labels={"scheduling.x-k8s.io/pod-group": "pg"}), "ns/pg"),
        (pod(spec=in_tree), "ns/pg"),
        (pod(labels={"batch.kubernetes.io/job-name": "j"}, spec=in_tree), "ns/job/j"),
        (pod(owner={**owner, "controller": True}), "ns/ReplicaSet/rs/u"),
        (pod(owner=owner), ""),
        (pod(), ""),
    ):
        assert membership.find_gang(of) == gang, of


def test_volcanos_job_id_and_the_annotation_of_its_pod_name_the_same_gang():
    assert membership.find_gang(pod(), "ns/job-1f") == membership.find_gang(pod(annotations=VOLCANO))


def test_ranks_are_ordered_by_the_number_in_their_name_not_by_its_text():
    names = ["j-worker-10", "j-worker-9", "j-worker-2"]
    assert sorted(names, key=lambda n: membership.find_rank(pod(n))) == ["j-worker-2", "j-worker-9", "j-worker-10"]


@pytest.mark.parametrize(("label", "index"), [("3", 3), ("9" * 100_000, 999_999_999)], ids=["usual", "of many digits"])
def test_the_index_label_takes_precedence_over_the_name_and_is_capped(label, index):
    assert membership.find_rank(pod("x-7", labels={"volcano.sh/task-index": label})).index == index


UID = "3f2a9c1e-0000-4000-8000-000000000000"
OWNED = {"owner": {"kind": "Job", "name": "llm", "uid": UID, "controller": True}}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"labels": {"volcano.sh/job-name": "llm"}, "annotations": {GROUP: f"llm-{UID}"}}, "llm"),
        ({"annotations": {GROUP: f"podgroup-{UID}"}, **OWNED}, "llm"),
        (
            {
                "labels": {
                    "training.kubeflow.org/job-name": "llm",
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                }
            },
            "llm",
        ),
        (
            {
                "labels": {
                    "leaderworkerset.sigs.k8s.io/name": "vllm",
                    "leaderworkerset.sigs.k8s.io/group-index": "2",
                }
            },
            "vllm/2",
        ),
        ({"annotations": {GROUP: "chosen-by-the-user"}}, "chosen-by-the-user"),
        (OWNED, "llm"),
        (
            {
                "labels": {"pod-template-hash": "558dc597d"},
                "owner": {**OWNED["owner"], "kind": "ReplicaSet", "name": "serve-558dc597d"},
            },
            "serve",  # a Deployment
        ),
    ],
)
def test_a_gang_is_shown_with_the_name_of_its_job(fields, name):
    made_pod = pod(**fields)
    assert membership.find_gang_name(made_pod, membership.find_gang(made_pod)) == name
