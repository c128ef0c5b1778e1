"""A watched pod with more values than placement reads still uses its node."""

import msgspec

from railwright.fabric import resources, scheduling_views

LIMIT = scheduling_views.MAX_VALUES


def decode(**spec):
    tree = {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "a", **spec}, "status": {"phase": "Running"}}
    return msgspec.convert(tree, scheduling_views.Pod)


def test_a_pod_below_the_limit_is_returned_as_it_is():
    pod = decode(containers=[{"name": "c", "resources": {"requests": {"a.b/c": "1"}}}], tolerations=[{"key": "k"}])
    assert scheduling_views.shorten(pod) is pod


def test_a_pod_keeps_its_node_its_claims_and_what_its_containers_request():
    zeros = {f"a.b/{number}": "0" for number in range(LIMIT)}
    containers = [{"name": "c", "resources": {"requests": {**zeros, "a.b/c": "2"}, "limits": {"a.b/d": "3"}}}]
    pod = scheduling_views.shorten(decode(containers=containers, resourceClaims=[{"name": "rails"}]))
    requests = resources.compute_requests(pod.spec)
    assert (requests["a.b/c"], requests["a.b/d"]) == (2000, 3000)
    assert (pod.spec.node_name, pod.status.phase) == ("a", "Running")
    assert [claim.name for claim in pod.spec.resource_claims] == ["rails"]


def test_lists_that_use_no_device_are_dropped():
    pod = scheduling_views.shorten(decode(tolerations=[{"key": f"k{number}"} for number in range(LIMIT)]))
    assert pod.spec.tolerations is None
    assert scheduling_views.count_values(pod) < LIMIT
