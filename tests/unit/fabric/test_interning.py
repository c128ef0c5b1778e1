"""Values that thousands of objects share are stored once, and values that are always new are not stored forever."""

import msgspec

from railwright.fabric import bounded_cache, node_views, scheduling_views
from railwright.fabric.placement.state import cluster_state
from webhook import state as states

HAS = {"nvidia.com/gpu": "8"}


def decode(view, tree):
    """Decode as a source does, so that every text is an object of its own."""
    return msgspec.json.decode(msgspec.json.encode(tree), type=view)


def node(name: str) -> dict:
    labels = {"a-label-that-is-longer-than-msgspec-remembers": "the same value", "hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": HAS, "capacity": HAS}}


def pod(name: str, **requests: str) -> dict:
    container = {"name": "c", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"nodeName": "node-1", "containers": [container]},
    }


def test_equal_texts_share_one_object():
    known = bounded_cache.StringInterner()
    one, other = (known.intern_mapping(decode(dict, {"key": "some value", "number": 3})) for _ in range(2))
    assert one == other == {"key": "some value", "number": 3}
    assert one["key"] is other["key"]


def test_the_memory_of_interned_texts_is_bounded():
    known = bounded_cache.StringInterner()
    for number in range(bounded_cache.MAX_STRINGS + 10):
        known.intern(f"node-{number}")
    assert len(known) <= bounded_cache.MAX_STRINGS


def test_nodes_of_the_webhook_share_their_labels():
    nodes = states.State().nodes
    excerpts = [nodes.excerpt(decode(node_views.Node, node(name))) for name in ("a", "b")]
    assert excerpts[0] == decode(node_views.Node, node("a"))
    assert is_shared(*(excerpt.metadata.labels for excerpt in excerpts))
    assert is_shared(*(excerpt.status.allocatable for excerpt in excerpts))


def test_nodes_and_pods_share_equal_values():
    known = cluster_state.ClusterState()
    for name in ("a", "b"):
        known.upsert_node(decode(node_views.Node, node(name)))
        known.upsert_pod(decode(scheduling_views.Pod, pod(name, cpu="100m", memory="64Mi")))
    assert is_shared(*(node.labels for node in known.nodes.values()))
    one, other = known.pods.values()
    assert one.requests is other.requests
    assert one.node is other.node


def is_shared(one, other) -> bool:
    """Return whether equal keys and equal values of both are the same objects."""
    assert one
    both = zip(sorted(one.items()), sorted(other.items()), strict=True)
    return all(a[0] is b[0] and (a[1] is b[1] or a[1] != b[1]) for a, b in both)
