"""Why a node cannot be used, and since when, as Kubernetes records it."""

import msgspec

from railwright.fabric import node_views
from railwright.fabric.overview import fabric_view


def node(spec=None, conditions=(), annotations=None, name="n"):
    tree = {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec or {},
        "status": {"conditions": list(conditions)},
    }
    return msgspec.convert(tree, node_views.Node)


NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "KubeletNotReady",
    "message": "container runtime is down",
    "lastTransitionTime": "2026-11-21T10:00:00Z",
}


def test_a_node_that_can_be_used_has_no_note():
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    tainted = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert fabric_view.describe(node({"taints": tainted}, [ready])) is None


def test_the_note_of_a_cordon_has_its_time_other_taints_and_annotations():
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-11-21T09:00:00Z"},
        {"key": "gpu-fault", "value": "xid-79", "effect": "NoSchedule"},
    ]
    annotations = {"repair.example/cordon-reason": "XID 79", "other": "x"}
    note = fabric_view.describe(node({"unschedulable": True, "taints": taints}, annotations=annotations))
    assert note == fabric_view.NodeNote(
        text="cordoned; repair.example/cordon-reason: XID 79",
        at="2026-11-21T09:00:00Z",
        taints=("gpu-fault=xid-79:NoSchedule",),
    )


def test_a_node_that_is_not_ready_has_the_reason_of_its_condition():
    note = fabric_view.describe(node(conditions=[NOT_READY]))
    assert note == fabric_view.NodeNote(
        text="not ready (KubeletNotReady: container runtime is down)", at="2026-11-21T10:00:00Z"
    )


def test_changed_notes_are_reported_once_and_a_deleted_node_has_none():
    notes = fabric_view.NodeNotes()
    notes.replace([node(conditions=[NOT_READY], name="a"), node(name="b")])
    assert notes.take_changed() == ["a"]
    notes.upsert(node(conditions=[NOT_READY], name="a"))
    assert notes.take_changed() == []
    notes.upsert(node({"unschedulable": True}, name="b"))
    notes.replace([node(name="b")])
    assert set(notes.take_changed()) == {"a", "b"}
    assert notes.find("a") is notes.find("b") is None
