"""Unfolds Lists: `kubectl get -o yaml` wraps objects in them, and a List may contain Lists."""

from collections.abc import Iterator, Mapping
from typing import Any

_MAX_DEPTH = 8  # a List in a List is unusual but legal; nobody nests deeper


class ListError(ValueError):
    """The document is neither an object nor a List of objects; the message names the object and the reason."""


def list_objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a document, each with its kind. Raises ListError."""
    return _list_nested(tree, {}, 0)


def format_name(obj: Mapping[str, Any]) -> str:
    """Return namespace and name of an object for a message, as far as it has them."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "an object without metadata"
    return repr("/".join(str(metadata[key])[:253] for key in ("namespace", "name") if metadata.get(key)))


def _list_nested(tree: Any, defaults: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects of a tree. `defaults`: items of a typed list such as NodeList may lack kind and apiVersion."""
    if not isinstance(tree, dict):
        raise ListError("expected an object with apiVersion, kind and metadata")
    kind = tree.get("kind") or defaults.get("kind", "")
    version = tree.get("apiVersion") or defaults.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise ListError(f"{format_name(tree)} has no kind; expected an object with apiVersion, kind and metadata")
    if not kind.endswith("List") or not isinstance(tree.get("items"), list | None):
        yield {**tree, "kind": kind, **({"apiVersion": version} if version else {})}
        return
    if depth >= _MAX_DEPTH:
        raise ListError(f"Lists are nested deeper than {_MAX_DEPTH}")
    defaults = {"kind": kind.removesuffix("List"), "apiVersion": version if kind != "List" else None}
    for item in tree.get("items") or ():
        yield from _list_nested(item, defaults, depth + 1)
