"""Text of a snapshot (YAML documents, JSON, a v1 List) -> typed views by kind.

Owns which kinds a snapshot may bring us and how a List unfolds. Refuses to know files, sinks and what the
objects are for; kinds we have no view of are left out, as a cluster too holds more than we watch.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cluster import documents, nodes
from fabric import views

# A kind we read from snapshots is a row.
VIEWS: Mapping[str, type[msgspec.Struct]] = {
    "Node": views.Node,
    "Pod": views.Pod,
    "Namespace": views.Namespace,
    "NetworkAttachmentDefinition": views.NetworkAttachmentDefinition,
    "PodGroup": views.PodGroup,
    "NodeResourceTopology": views.NodeResourceTopology,
    "ConfigMap": views.ConfigMap,
}

_LOG = logging.getLogger(__name__)
_MAX_LISTS = 8  # a List in a List is odd but legal; a deeper nest is not an honest snapshot


class SnapshotError(ValueError):
    """The text is not a snapshot; the message names the object and the reason."""


def read(text: str) -> dict[str, list[Any]]:
    """Views by kind, every kind of VIEWS present; raises SnapshotError, and then nothing of it counts."""
    found: dict[str, list[Any]] = {kind: [] for kind in VIEWS}
    for tree in _trees(text):
        for obj in _unfolded(tree, "", 0):
            kind = str(obj.get("kind", ""))
            if kind in VIEWS:
                found[kind].append(_view(kind, obj))
            else:
                _LOG.debug("snapshot: kind %r is not read", kind)
    return found


def _trees(text: str) -> Iterator[Any]:
    if text.lstrip()[:1] in ("{", "["):
        with contextlib.suppress(
            msgspec.DecodeError, RecursionError
        ):  # YAML's flow style; a real mistake gets its line below
            yield msgspec.json.decode(text)  # ten times faster than YAML, of which JSON is a part
            return
    try:
        for root in nodes.compose(text):
            yield documents.tree(root)
    except nodes.DocumentError as error:
        raise SnapshotError(str(error)) from None


def _unfolded(tree: Any, kind: str, depth: int) -> Iterator[dict[str, Any]]:
    """The objects of a document; items of a NodeList may leave out their kind, as the API server does."""
    if tree is None:
        return  # an empty document between two separators
    if not isinstance(tree, dict):
        raise SnapshotError("an object is wanted (a mapping with apiVersion, kind and metadata)")
    own = tree.get("kind") or kind
    if not isinstance(own, str) or not own:
        raise SnapshotError(f"{_name(tree)} has no kind; add one, such as kind: Node")
    if not own.endswith("List") or not isinstance(tree.get("items"), list | None):
        yield {**tree, "kind": own}
        return
    if depth >= _MAX_LISTS:
        raise SnapshotError(f"Lists are nested deeper than {_MAX_LISTS}")
    for item in tree.get("items") or ():
        yield from _unfolded(item, own.removesuffix("List"), depth + 1)


def _view(kind: str, obj: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(documents.without_nulls(obj), VIEWS[kind])
    except msgspec.ValidationError as error:
        raise SnapshotError(f"{kind} {_name(obj)}: {error}") from None
    except RecursionError:
        raise SnapshotError(f"{kind} {_name(obj)}: is nested too deeply") from None


def _name(obj: dict[str, Any]) -> str:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "an object without metadata"
    return repr("/".join(str(metadata[key])[:253] for key in ("namespace", "name") if metadata.get(key)))
