"""The pod view of placement: it has every field that placement reads, and decodes no other."""

import json

import msgspec
from admitting import WIRE

from railwright.fabric import node_views, resources, scheduling_views, views
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.workloads import membership

FULL, PLACED = (msgspec.json.Decoder(kind).decode for kind in (views.Pod, scheduling_views.Pod))


def pods() -> list[bytes]:
    """Return pods of both schedulers and the API server, and one with every field that placement reads."""
    wire = [json.loads((WIRE / name).read_text()) for name in ("volcano.json", "kube-scheduler.json")]
    review = json.loads((WIRE / "admission-pods-bench.json").read_text())["request"]["object"]
    made = {
        "metadata": {"name": "w-3", "namespace": "train", "uid": "u", "labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8}}, "env": None}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "first", "resources": {"requests": {"cpu": "4"}}, "volumeMounts": [{"name": "v"}]},
            ],
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "schedulingGroup": {"podGroupName": "g"},
            "nodeName": "n",
        },
        "status": {"phase": "Running"},
    }
    return [json.dumps(tree).encode() for tree in (wire[0]["task"]["Pod"], wire[1]["Pod"], review, made)]


def test_the_views_of_placement_equal_those_of_the_whole_pod():
    for text in pods():
        full, placed = FULL(text), PLACED(text)
        assert resources.compute_requests(placed.spec) == resources.compute_requests(full.spec)
        assert membership.find_gang(placed) == membership.find_gang(full)
        assert membership.find_rank(placed) == membership.find_rank(full)
        assert placed.metadata == full.metadata
        assert placed.status == full.status
        for part in ("node_name", "node_selector", "affinity", "tolerations", "scheduling_group", "scheduler_name"):
            assert getattr(placed.spec, part) == getattr(full.spec, part), part


def test_a_field_that_is_not_read_may_hold_anything():
    text = b'{"spec":{"volumes":{"no":"list"},"containers":[{"env":7,"image":null,"command":{}}]}}'
    assert len(PLACED(text).spec.containers) == 1


# --- shared values are stored once ----------------------------------------------------------------------------


HAS = {"nvidia.com/gpu": "8"}


def decode(view, tree):
    """Decode as a source does, so that equal texts are different objects."""
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
    """Return True if equal keys and equal values of both are the same objects."""
    assert one
    both = zip(sorted(one.items()), sorted(other.items()), strict=True)
    return all(a[0] is b[0] and (a[1] is b[1] or a[1] != b[1]) for a, b in both)
