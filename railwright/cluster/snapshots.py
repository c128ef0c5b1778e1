"""Parses the text of a snapshot (YAML documents, JSON, a v1 List) into views by kind.

Objects of other kinds than those of KINDS are ignored.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from railwright.cluster import documents, resources

KINDS: Mapping[str, resources.Kind] = {
    kind.snapshot_kind: kind
    for kind in (
        resources.NODES,
        resources.WAITING_PODS,
        resources.NAMESPACES,
        resources.NADS,
        resources.NODE_TOPOLOGIES,
        resources.POLICY,
        resources.HYPER_NODES,
        resources.DEVICE_CLASSES,
        resources.RESOURCE_CLAIMS,
        resources.CLAIM_TEMPLATES,
        resources.RESOURCE_SLICES,
        *resources.GANG_SIZES.values(),
    )
}
# Versions whose objects have other fields.
_UNREADABLE = frozenset({"resource.k8s.io/v1alpha2", "resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1"})


def read(text: str) -> dict[str, list[Any]]:
    """Return the decoded objects by kind, with a list for every kind of KINDS. Raises DocumentError for any error."""
    views_by_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    trees = [tree for tree in _read_trees(text) if tree is not None]  # None: an empty document between two separators
    if not trees:
        raise documents.DocumentError(
            "is empty; expected objects as kubectl get nodes,pods,namespaces -A -o yaml writes them"
        )
    for obj in itertools.chain.from_iterable(map(list_objects, trees)):
        key = _build_kind_key(obj)
        if key in KINDS:
            views_by_kind[key].append(_convert_to_view(key, obj))
    return views_by_kind


def _build_kind_key(obj: Mapping[str, Any]) -> str:
    """Return the key of an object's kind in KINDS: KIND or KIND.GROUP. KINDS may lack this key."""
    kind, group = str(obj.get("kind", "")), str(obj.get("apiVersion", "")).rpartition("/")[0]
    is_known = kind in KINDS and group == KINDS[kind].group
    return kind if is_known else f"{kind}.{group}"  # other projects have a Node or an Event of their own


def _read_trees(text: str) -> Iterator[Any]:
    if text.lstrip()[:1] in ("{", "["):
        # YAML's flow style begins like JSON; real errors get their line below
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            yield msgspec.json.decode(text)  # ten times faster than parsing it as YAML
            return
    yield from (documents.build_document(root).tree for root in documents.parse(text))


def _convert_to_view(key: str, obj: dict[str, Any]) -> Any:
    version, name = str(obj.get("apiVersion")), f"{obj['kind']} {format_name(obj)}"
    if version in _UNREADABLE:  # its devices would be missing
        raise documents.DocumentError(
            f"{name}: apiVersion: {version} is not read; expected resource.k8s.io/v1, which kubectl get -o json writes "
            "on Kubernetes 1.34 and later"
        )
    try:
        return msgspec.convert(documents.remove_nulls(obj), KINDS[key].view)
    except msgspec.ValidationError as error:
        raise documents.DocumentError(f"{name}: {error}") from None
    except RecursionError:
        raise documents.DocumentError(f"{name}: is nested too deeply") from None


def format_name(obj: Mapping[str, Any]) -> str:
    """Return NAMESPACE/NAME of an object in quotes, for a message, as far as the object has them."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "an object without metadata"
    return repr("/".join(str(metadata[key])[:253] for key in ("namespace", "name") if metadata.get(key)))


def list_objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a document, and the items of its Lists in place of the Lists. Raises DocumentError.

    Items of a typed list such as NodeList get kind and apiVersion from the list if they lack them.
    """
    waiting = [tree]  # not a recursion: JSON may nest Lists thousands deep
    while waiting:
        tree = waiting.pop()
        if not isinstance(tree, dict):
            raise documents.DocumentError("expected an object with apiVersion, kind and metadata")
        kind, version = tree.get("kind"), tree.get("apiVersion")
        if not isinstance(kind, str) or not kind:
            name = format_name(tree)
            raise documents.DocumentError(f"{name} has no kind; expected an object with apiVersion, kind and metadata")
        if not kind.endswith("List") or not isinstance(tree.get("items"), list | None):
            yield tree
            continue
        defaults = {"kind": kind.removesuffix("List"), "apiVersion": version} if kind != "List" else {}
        items = reversed(tree.get("items") or ())
        waiting.extend({**defaults, **item} if isinstance(item, dict) else item for item in items)
