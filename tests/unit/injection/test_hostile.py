"""Hostile pods are refused at once, or planned in a number of calls that is proportional to their size."""

import call_counts
import pytest
from admitting import SHAPES, admit_pod, cpu, fabric, get_refusal, plan_pod, pod


@pytest.mark.parametrize("mark", ["-", "rail0-", "rail0-rail1,"])
def test_a_malformed_rails_annotation_of_the_maximum_size_is_refused(mark):
    written = mark * (250_000 // len(mark)) + "x"
    assert "is not a rail or a range" in get_refusal(pod(annotations={"railwright.io/rails": written}), fabric())


@pytest.mark.parametrize("key", ["railwright.io/injection", "railwright.io/nccl.conf"])
def test_replaced_annotations_do_not_count_towards_the_size_limit(key):
    tree = admit_pod(pod(annotations={key: "x" * 300_000}), fabric())
    assert len(tree["metadata"]["annotations"].get(key, "")) < 10_000


def build_pod_of_many_containers(size: int) -> dict:
    """Return a pod whose last container of many requests a GPU."""
    held = pod(*[cpu(f"c{number}", env=[{"name": "A", "value": "b"}]) for number in range(size)], cpu("last"))
    held["spec"]["containers"][-1]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return held


def build_pod_of_many_terms(size: int) -> dict:
    """Return a pod whose affinity has many terms and many expressions, and that selects nodes by many labels."""
    forbidden = [{"key": "gpu", "operator": "NotIn", "values": [str(number)]} for number in range(size)]
    terms = [{"matchExpressions": forbidden}, *([{"matchExpressions": forbidden[:1]}] * size)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(affinity={"nodeAffinity": required}, nodeSelector={f"k{number}": "v" for number in range(size)})


@pytest.mark.parametrize(
    ("build", "policy"),
    [
        (build_pod_of_many_containers, fabric(rails="[{name: r, resource: d/r}]")),
        (build_pod_of_many_terms, fabric("    resolve: always\n", top=SHAPES)),
    ],
)
def test_planning_a_pod_of_twice_the_size_takes_at_most_two_and_a_half_times_as_many_calls(build, policy):
    small, large = build(300), build(600)
    plan_pod(small, policy)  # what all plans share is computed by the first
    assert call_counts.count(lambda: plan_pod(large, policy)) < 2.5 * call_counts.count(lambda: plan_pod(small, policy))
