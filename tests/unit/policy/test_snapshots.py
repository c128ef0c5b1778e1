import json
import time

import pytest

from railwright.cluster import snapshots

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: a, creationTimestamp: null, labels: {x: "1"}}
status: {allocatable: {cpu: 4, nvidia.com/gpu: "8"}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: n}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}
- {apiVersion: v1, kind: NodeList, items: [{metadata: {name: b}}]}
---
"""


def test_documents_and_lists_unfold_into_views_by_kind():
    found = snapshots.read(NODES)
    assert [node.metadata.name for node in found["Node"]] == ["a", "b"]
    assert found["Node"][0].status.allocatable == {"cpu": 4, "nvidia.com/gpu": "8"}
    assert [pod.metadata.namespace for pod in found["Pod"]] == ["n"]
    assert found["PodGroup.scheduling.volcano.sh"] == []
    assert "Deployment" not in found


def test_json_and_yaml_give_the_same_views():
    text = json.dumps({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a", "labels": None}}]})
    assert snapshots.read(text) == snapshots.read("  " + text + "\n# yaml\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "line"),
        ("- a\n", "expected an object"),
        ("metadata: {name: a}\n", "'a' has no kind"),
        ("kind: Node\nmetadata: {name: a, labels: {x: 1}}\n", "Node 'a': Expected `str`, got `int`"),
        ("kind: Node\nmetadata: {name: a}\nmetadata: {name: b}\n", "the key is already on line 2"),
        ('{"kind": "Node", ', "line 1"),
        ("[" * 5000, "nested"),
        ('{"kind": "List", "items": [' * 20 + "]}" * 20, "nested"),
    ],
)
def test_a_bad_snapshot_is_refused_with_the_object_or_line(text, says):
    with pytest.raises(snapshots.SnapshotError, match=says.replace("[", r"\[")):
        snapshots.read(text)


def test_a_json_snapshot_of_five_thousand_nodes_is_read_in_a_second():
    node = {
        "kind": "Node",
        "metadata": {"labels": {f"example.com/label-{i}": str(i) for i in range(30)}},
        "status": {"allocatable": {f"nvidia.com/mlx5_{i}": "1" for i in range(8)}},
    }
    items = [{**node, "metadata": {**node["metadata"], "name": f"n{i}"}} for i in range(5000)]
    text = json.dumps({"kind": "List", "items": items})
    start = time.perf_counter()
    assert len(snapshots.read(text)["Node"]) == 5000
    assert time.perf_counter() - start < 5  # measured 0.3 s; the margin is for a busy machine
