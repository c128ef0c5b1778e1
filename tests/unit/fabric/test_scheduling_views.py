"""The pod view of placement: it has every field that placement reads, and decodes no other."""

import json
import pathlib

import msgspec

from railwright.fabric import resources, scheduling_views, views
from railwright.fabric.workloads import membership

WIRE = pathlib.Path(__file__).resolve().parents[2] / "data" / "wire"
FULL, PLACED = (msgspec.json.Decoder(kind).decode for kind in (views.Pod, scheduling_views.Pod))


def pods() -> list[bytes]:
    """Return pods of both schedulers and the API server, and one with every field that placement reads."""
    wire = [json.loads((WIRE / name).read_text()) for name in ("volcano-allocate.json", "kube-scheduler-filter.json")]
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
        ours = {"init_container_statuses": placed.status.init_container_statuses}  # skipped in those of whole pods
        assert msgspec.structs.asdict(placed.status) == msgspec.structs.asdict(full.status) | ours
        for part in ("node_name", "node_selector", "affinity", "tolerations", "scheduling_group", "scheduler_name"):
            assert getattr(placed.spec, part) == getattr(full.spec, part), part


def test_commands_and_environment_of_pods_are_not_decoded():
    (pod,) = [PLACED(text) for text in pods() if b"/var/run/secrets" in text and b"TaskRole" not in text][:1]
    container = pod.spec.containers[0]
    assert (container.env, container.volume_mounts, container.image, container.command) == ([], [], "", None)
    assert pod.spec.volumes == []


def test_a_field_that_is_not_read_may_hold_anything():
    text = b'{"spec":{"volumes":{"no":"list"},"containers":[{"env":7,"image":null,"command":{}}]}}'
    assert len(PLACED(text).spec.containers) == 1
