"""The names by which users know gangs."""

import pytest
from placing import pod

from railwright.fabric import views
from railwright.fabric.workloads import membership

UID = "3f2a9c1e-0000-4000-8000-000000000000"


def build(labels: dict[str, str], annotations: dict[str, str] | None = None, owner: str = "") -> views.Pod:
    made = pod("w-0", label=None)
    owners = [views.OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid=UID, controller=True)]
    metadata = views.ObjectMeta(
        name="w-0",
        namespace="train",
        labels_or_none=labels,
        annotations_or_none=annotations or {},
        owner_references_or_none=owners if owner else None,
    )
    return views.Pod(metadata=metadata, spec=made.spec)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (
            build({"volcano.sh/job-name": "llm"}, {"scheduling.k8s.io/group-name": f"llm-{UID}"}),
            "llm",
        ),
        (build({}, {"scheduling.k8s.io/group-name": f"podgroup-{UID}"}, owner="llm"), "llm"),
        (
            build(
                {
                    "training.kubeflow.org/job-name": "llm",
                    "training.kubeflow.org/operator-name": "pytorchjob-controller",
                }
            ),
            "llm",
        ),
        (build({"leaderworkerset.sigs.k8s.io/name": "vllm", "leaderworkerset.sigs.k8s.io/group-index": "2"}), "vllm/2"),
        (build({}, {"scheduling.k8s.io/group-name": "chosen-by-the-user"}), "chosen-by-the-user"),
        (build({}, owner="llm"), "llm"),
        (build({"pod-template-hash": "558dc597d"}, owner="serve-558dc597d"), "serve"),  # a Deployment
    ],
)
def test_a_gang_has_the_name_of_its_job(made, name):
    assert membership.find_gang_name(made, membership.find_gang(made)) == name
