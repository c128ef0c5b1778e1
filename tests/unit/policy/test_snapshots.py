"""Snapshot files of a cluster, in JSON or YAML: the objects read from them, and errors with object or line."""

import json

import pytest

from railwright.cluster import documents, snapshots

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
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


def test_a_snapshot_has_the_objects_of_all_documents_and_lists_by_kind():
    result = snapshots.read(NODES)
    assert [node.metadata.name for node in result["Node"]] == ["a", "b"]
    assert result["Node"][0].status.allocatable == {"cpu": 4, "nvidia.com/gpu": "8"}
    assert [pod.metadata.namespace for pod in result["Pod"]] == ["n"]
    assert result["PodGroup.scheduling.volcano.sh"] == []
    assert "Deployment" not in result


def test_nested_lists_of_a_snapshot_are_read_in_the_order_of_the_text():
    """They are far deeper than YAML may be. Python 3.11 and 3.12 decode up to 1,000 levels, later ones more."""
    text = '{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}, ' * 300
    text += '{"kind": "Node", "metadata": {"name": "last"}}' + "]}" * 300
    assert [node.metadata.name for node in snapshots.read(text)["Node"]] == ["a"] * 300 + ["last"]


def test_an_object_of_another_api_group_is_not_read_as_a_kubernetes_node():
    others = ("longhorn.io/v1beta2", "events.example.com/v1")
    text = "---\n".join(f"apiVersion: {other}\nkind: Node\nmetadata: {{name: a}}\n" for other in ("v1", *others))
    assert [node.metadata.name for node in snapshots.read(text)["Node"]] == ["a"]
    network = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: n}\n"
    assert len(snapshots.read(network)["NetworkAttachmentDefinition"]) == 1


def test_a_snapshot_gives_the_same_objects_from_json_and_yaml():
    text = json.dumps({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a", "labels": None}}]})
    assert snapshots.read(text) == snapshots.read("  " + text + "\n# yaml\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "line"),
        ("- a\n", "expected an object"),
        ("", "is empty"),
        ("---\n# nothing\n---\n", "is empty"),
        ("null", "is empty"),
        ("metadata: {name: a}\n", "'a' has no kind"),
        ("kind: Node\nmetadata: {name: a, labels: {x: 1}}\n", "Node 'a': Expected `str`, got `int`"),
        ("apiVersion: [v1]\nkind: Node\nmetadata: {name: a, labels: 1}\n", "Node 'a': Expected `object"),
        ('{"kind": "Node", ', "line 1"),
        ("[" * 5000, "nested"),
        (f"kind: Node\nmetadata: {{name: a}}\n{LAUGHS}", "use fewer aliases"),
    ],
)
def test_a_bad_snapshot_is_rejected_with_the_object_or_line(text, says):
    with pytest.raises(documents.DocumentError, match=says.replace("[", r"\[")):
        snapshots.read(text)


@pytest.mark.parametrize("kind", ["ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass"])
def test_a_dra_object_of_v1beta1_is_rejected_with_the_fix(kind):
    obj = {"apiVersion": "resource.k8s.io/v1beta1", "kind": kind, "metadata": {"name": "x"}}
    expected = r" 'x': apiVersion: resource.k8s.io/v1beta1 is not read; expected resource.k8s.io/v1, which kubectl get"
    with pytest.raises(documents.DocumentError, match=f"^{kind}{expected}"):
        snapshots.read(json.dumps(obj))
    assert len(snapshots.read(json.dumps(obj | {"apiVersion": "resource.k8s.io/v1beta2"}))[kind]) == 1
