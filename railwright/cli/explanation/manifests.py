"""The objects of a manifest: YAML documents, JSON, Lists unfolded.

Owns that and the words for what cannot be read. What an object makes, `templates` says.
"""

from collections.abc import Iterator
from typing import Any

from railwright.cli import output
from railwright.cluster import documents, nodes

Tree = dict[str, Any]
_MAX_LISTS = 8  # a List in a List is odd but legal; a deeper nest is no honest manifest


def read(text: str, shown: str) -> list[Tree]:
    """The objects of a file called `shown`, without nulls, as the API server has them. Raises UnreadableError."""
    try:
        trees = [documents.without_nulls(documents.tree(root)) for root in nodes.compose(text)]
    except nodes.DocumentError as error:
        raise output.UnreadableError(f"{shown}: {error}") from None
    found = [each for tree in trees if tree is not None for each in _unfolded(tree, shown, 0)]
    if not found:
        raise output.UnreadableError(f"{shown}: holds no object; a pod or a workload is expected")
    return found


def title(tree: Tree, namespace: str = "") -> str:
    """How answers name an object: kind, then namespace/name as far as there are such."""
    metadata = mapping(tree, "metadata")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    return f"{tree.get('kind')} {namespace}/{name}" if namespace else f"{tree.get('kind')} {name}"


def mapping(tree: Any, *path: str) -> Tree:
    """The mapping at a path; an empty one where there is none, or something else."""
    for step in path:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def sequence(tree: Any, *path: str) -> list[Any]:
    """The list at a path; an empty one where there is none, or something else."""
    found = mapping(tree, *path[:-1]).get(path[-1])
    return found if isinstance(found, list) else []


def _unfolded(tree: Any, shown: str, depth: int) -> Iterator[Tree]:
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str):
        raise output.UnreadableError(f"{shown}: expected an object with apiVersion, kind and metadata")
    if not tree["kind"].endswith("List") or not isinstance(tree.get("items"), list):
        yield tree
        return
    if depth >= _MAX_LISTS:
        raise output.UnreadableError(f"{shown}: Lists are nested deeper than {_MAX_LISTS}")
    for item in tree["items"]:
        yield from _unfolded(item, shown, depth + 1)
