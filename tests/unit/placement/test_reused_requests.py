"""Requests of successive pods are computed again only for containers that differ."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import resources, views

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
