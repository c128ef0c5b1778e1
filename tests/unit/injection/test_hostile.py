"""Pods written to keep the webhook busy: what a review may hold, it answers in time proportional to its size."""

import pytest
from admitting import SHAPES, admitted, cpu, fabric, gpus, planned, pod, refusal

pytestmark = pytest.mark.timeout(20)  # seconds: each takes about one, and took minutes where it was not linear

NAMES = [f"c{number}" for number in range(60_000)]


@pytest.mark.parametrize("mark", ["-", "rail0-", "rail0-rail1,"])
def test_a_rails_annotation_of_megabytes_is_refused_at_once(mark):
    written = mark * (3_000_000 // len(mark)) + "x"
    assert "is not a rail or a range" in refusal(pod(annotations={"railwright.io/rails": written}), fabric())


def test_devices_are_counted_once_over_very_many_containers():
    outcome = planned(pod(*[gpus(1, name) for name in NAMES]), fabric(rails="[{name: r, resource: d/r}]"))
    assert len(outcome.containers) == len(NAMES)


def test_very_many_containers_are_found_by_name():
    tree = pod(*map(cpu, NAMES), annotations={"railwright.io/containers": ",".join(reversed(NAMES))})
    assert len(planned(tree, fabric(rails="[{name: r}]")).containers) == len(NAMES)


def test_very_many_affinity_terms_and_expressions_are_read_once_each():
    forbidden = [{"key": "gpu", "operator": "NotIn", "values": [str(number)]} for number in range(60_000)]
    terms = [{"matchExpressions": forbidden}, *([{"matchExpressions": forbidden[:1]}] * 20_000)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    selector = {f"k{number}": "v" for number in range(20_000)}
    tree = pod(affinity={"nodeAffinity": required}, nodeSelector=selector)
    paths = [each["mountPath"] for each in admitted(tree, fabric(top=SHAPES))["spec"]["containers"][0]["volumeMounts"]]
    assert paths == ["/etc/nccl.conf"]
