"""Hostile pods: the time to plan a pod is proportional to its size."""

import cpu_time
import pytest
from admitting import SHAPES, admitted, cpu, fabric, gpus, planned, pod, refusal

NAMES = [f"c{number}" for number in range(60_000)]


@pytest.fixture(autouse=True)
def _limit_cpu_time():
    with cpu_time.limit(20):  # seconds: each takes about one, and took minutes where it was not linear
        yield


@pytest.mark.parametrize("mark", ["-", "rail0-", "rail0-rail1,"])
def test_a_rails_annotation_of_the_maximum_size_is_refused_at_once(mark):
    written = mark * (250_000 // len(mark)) + "x"
    assert "is not a rail or a range" in refusal(pod(annotations={"railwright.io/rails": written}), fabric())


@pytest.mark.parametrize(
    "key", ["k8s.v1.cni.cncf.io/networks", "railwright.io/rails", "railwright.io/containers", "else/where"]
)
def test_annotations_beyond_kubernetes_limit_are_refused_unread(key):
    message = refusal(pod(annotations={key: "n," * 1_500_000}), fabric())
    assert f"annotations are {3_000_000 + len(key)} bytes; the limit is 262144: remove some of them" in message


@pytest.mark.parametrize("key", ["railwright.io/injection", "railwright.io/nccl.conf"])
def test_annotations_that_are_replaced_need_no_room(key):
    tree = admitted(pod(annotations={key: "x" * 300_000}), fabric())
    assert len(tree["metadata"]["annotations"].get(key, "")) < 10_000


def test_more_than_256_chosen_containers_are_refused():
    some = [gpus(1, name) for name in NAMES[:257]]
    assert len(planned(pod(*some[:256]), fabric()).containers) == 256
    assert "257 containers are selected for the fabric; the limit is 256: name those" in refusal(pod(*some), fabric())
    assert "60000 containers" in refusal(pod(*[gpus(1, name) for name in NAMES]), fabric())


@pytest.mark.exhaustive
def test_a_few_of_many_containers_are_selected_by_name_or_requests():
    policy = fabric(rails="[{name: r, resource: d/r}]")
    named = pod(*map(cpu, NAMES), annotations={"railwright.io/containers": "c59999,c3"})
    assert planned(named, policy).containers == ("c3", "c59999")
    held = pod(*[cpu(name, env=[{"name": "A", "value": "b"}]) for name in NAMES[:-1]], cpu(NAMES[-1]))
    held["spec"]["containers"][-1]["resources"] = {"limits": {"d/r": "1"}, "requests": {"d/r": "1"}}
    assert planned(held, policy).containers == (NAMES[-1],)


@pytest.mark.exhaustive
def test_many_affinity_terms_without_shapes_count_as_one():
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}] * 300_000
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    policy = fabric("    preflight: {enabled: true}\n", top=SHAPES)
    assert planned(pod(affinity={"nodeAffinity": required}), policy).changes


@pytest.mark.exhaustive
def test_very_many_affinity_terms_and_expressions_are_read_once_each():
    forbidden = [{"key": "gpu", "operator": "NotIn", "values": [str(number)]} for number in range(60_000)]
    terms = [{"matchExpressions": forbidden}, *([{"matchExpressions": forbidden[:1]}] * 20_000)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    selector = {f"k{number}": "v" for number in range(20_000)}
    tree = pod(affinity={"nodeAffinity": required}, nodeSelector=selector)
    paths = [
        mount["mountPath"] for mount in admitted(tree, fabric(top=SHAPES))["spec"]["containers"][0]["volumeMounts"]
    ]
    assert paths == ["/etc/nccl.conf"]
