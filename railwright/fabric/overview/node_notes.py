"""Stores why nodes cannot be used: cordons, conditions and taints, with the times that Kubernetes records.

A sink of nodes beside the cluster state, which only knows whether a node is schedulable. Nodes without a note are not
stored.
"""

from collections.abc import Iterator, Sequence

import msgspec

from railwright.fabric import node_views, text

UNSPECIFIED = "cordoned or not ready"  # for readers without this sink
_MAX_TEXT = 300  # characters of a condition's message or an annotation
_CORDON_TAINT = "node.kubernetes.io/unschedulable"
_KUBERNETES_TAINTS = "node.kubernetes.io/"  # repeat what spec.unschedulable and the conditions say


class NodeNote(msgspec.Struct, frozen=True):
    """Why a node cannot be used."""

    text: str
    at: str = ""  # RFC 3339: since when; "" if unknown
    taints: tuple[str, ...] = ()  # KEY=VALUE:EFFECT


class NodeNotes:
    """Notes by node. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self._notes: dict[str, NodeNote] = {}
        self._changed: dict[str, None] = {}

    def find(self, node: str) -> NodeNote | None:
        """Return the note of a node; None if the node can be used."""
        return self._notes.get(node)

    def take_changed(self) -> Sequence[str]:
        """Return the nodes with a new note, an old one or another one since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def replace(self, objects: Sequence[node_views.Node]) -> None:
        """Apply the full list of nodes."""
        for name in self._notes.keys() - {node.metadata.name for node in objects}:
            self._store(name, None)
        for node in objects:
            self.upsert(node)

    def upsert(self, obj: node_views.Node) -> None:
        """Apply a new or changed node."""
        self._store(obj.metadata.name, describe(obj))

    def remove(self, obj: node_views.Node) -> None:
        """Forget a node."""
        self._store(obj.metadata.name, None)

    def _store(self, name: str, note: NodeNote | None) -> None:
        if note == self._notes.get(name):
            return
        self._changed[name] = None
        if note is None:
            del self._notes[name]
        else:
            self._notes[name] = note


def describe(node: node_views.Node) -> NodeNote | None:
    """Return the note of a node; None if it is schedulable and Ready."""
    taints = node.spec.taints or ()
    not_ready = [
        condition
        for condition in node.status.conditions or ()
        if condition.type == "Ready" and condition.status != "True"
    ]
    parts, times = [], []
    if node.spec.unschedulable:
        parts.append("; ".join(["cordoned", *_list_cordon_reasons(node)]))
        times += [taint.time_added for taint in taints if taint.key == _CORDON_TAINT]
    for condition in not_ready:
        detail = ": ".join(filter(None, (condition.reason, text.truncate(condition.message, _MAX_TEXT))))
        parts.append(f"not ready{detail and f' ({detail})'}")
        times.append(condition.last_transition_time)
    if not parts:
        return None
    own_taints = (taint for taint in taints if not taint.key.startswith(_KUBERNETES_TAINTS))
    return NodeNote(
        text=", ".join(parts),
        at=min(filter(None, times), default=""),
        taints=tuple(f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}" for taint in own_taints),
    )


def _list_cordon_reasons(node: node_views.Node) -> Iterator[str]:
    """Yield annotations about the cordon. Kubernetes has no field for it; repair controllers write annotations."""
    for key, value in sorted(node.metadata.annotations.items()):
        if "cordon" in key.lower() and value:
            yield f"{key}: {text.truncate(value, _MAX_TEXT)}"
