"""The resources that a pod requests: by its containers, its spec and its runtime class."""

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import resources, views
from railwright.fabric.placement.state import cluster_state

_amounts = st.dictionaries(st.sampled_from(("cpu", "memory", "nvidia.com/gpu")), st.sampled_from(("1", "2", "500m", 1)))
_resources = st.none() | st.builds(views.ResourceRequirements, requests_or_none=_amounts, limits_or_none=_amounts)
_containers = st.lists(
    st.builds(views.Container, resources=_resources, restart_policy=st.sampled_from((None, "Always"))), max_size=2
)
_specs = st.builds(
    views.PodSpec,
    containers_or_none=st.none() | _containers,
    init_containers=st.none() | _containers,
    overhead=st.none() | _amounts,
    resources=_resources,
)


@given(st.lists(_specs, max_size=4))
def test_requests_read_with_a_cache_equal_those_computed_without(specs):
    reader = resources.RequestReader(lambda amounts: amounts)
    for spec in itertools.chain.from_iterable(zip(specs, specs, strict=True)):
        assert reader.compute(spec) == resources.compute_requests(spec)


def compute_requests(**spec) -> dict[str, int]:
    state = cluster_state.ClusterState()
    state.upsert_pod(msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, views.Pod))
    (pod,) = state.pods.values()
    return dict(pod.requests)


def test_a_pod_takes_the_overhead_of_its_runtime_class():
    (app, setup) = ([{"name": "c", "resources": {"requests": {"cpu": cpu}}}] for cpu in ("1", "2"))
    requests = compute_requests(overhead={"cpu": "250m", "memory": "120Mi"}, containers=app, initContainers=setup)
    assert requests == {"cpu": 2250, "memory": 120 * 2**20 * 1000, "pods": 1000}


def test_pod_level_requests_replace_those_of_the_containers():
    containers = [{"name": n, "resources": {"requests": {"cpu": "1", "x.y/hca": "1"}}} for n in ("a", "b")]
    whole = {"requests": {"cpu": "6", "hugepages-2Mi": "4Mi", "x.y/hca": "9"}, "limits": {"cpu": "8", "memory": "1k"}}
    counted = {"cpu": 6000, "memory": 1000 * 1000, "hugepages-2Mi": 4 * 2**20 * 1000, "x.y/hca": 2000, "pods": 1000}
    assert compute_requests(containers=containers, resources=whole) == counted
    assert compute_requests(containers=containers, resources=whole, overhead={"cpu": "1"}) == counted | {"cpu": 7000}
    only_limits = {"limits": {"cpu": "8", "memory": "1k"}}
    assert compute_requests(containers=containers, resources=only_limits)["cpu"] == 2000, (
        "containers say what is requested"
    )
    assert compute_requests(containers=containers, resources={}) == compute_requests(containers=containers)
