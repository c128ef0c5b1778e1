"""The pod view of placement: it has every field that placement reads, and decodes no other."""

import json

import msgspec
from admitting import WIRE

from railwright.fabric import resources, scheduling_views, views
from railwright.fabric.workloads import membership

FULL, PLACED = (msgspec.json.Decoder(kind).decode for kind in (views.Pod, scheduling_views.Pod))


def list_pods() -> list[bytes]:
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


def test_placement_views_of_a_pod_equal_the_full_views_in_their_fields():
    for text in list_pods():
        full, placed = FULL(text), PLACED(text)
        assert resources.compute_requests(placed.spec) == resources.compute_requests(full.spec)
        assert membership.find_gang(placed) == membership.find_gang(full)
        assert membership.find_rank(placed) == membership.find_rank(full)
        assert placed.metadata == full.metadata
        assert placed.status == full.status
        for part in ("node_name", "node_selector", "affinity", "tolerations", "scheduling_group", "scheduler_name"):
            assert getattr(placed.spec, part) == getattr(full.spec, part), part


def test_a_field_that_placement_does_not_read_may_have_any_value():
    text = b'{"spec":{"volumes":{"no":"list"},"containers":[{"env":7,"image":null,"command":{}}]}}'
    assert len(PLACED(text).spec.containers) == 1
