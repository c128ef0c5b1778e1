"""Reads the objects of a manifest: YAML documents, JSON, Lists unfolded."""

from typing import Any

from railwright.cli import output
from railwright.cluster import documents, lists, nodes

Tree = dict[str, Any]


def read(text: str, file: str) -> list[Tree]:
    """Return the objects of a file, without nulls, as the API server has them. Raises UnreadableError."""
    try:
        trees = [documents.without_nulls(documents.tree(root)) for root in nodes.compose(text)]
        objects = [obj for tree in trees if tree is not None for obj in lists.unfold(tree)]
    except (nodes.DocumentError, lists.ListError) as error:
        raise output.UnreadableError(f"{file}: {error}") from None
    if not objects:
        raise output.UnreadableError(f"{file}: contains no object; expected a pod or a workload")
    return objects


def format_title(tree: Tree, namespace: str = "") -> str:
    """Return kind, namespace and name of an object for messages, as far as it has them."""
    metadata = get_mapping(tree, "metadata")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    return f"{tree.get('kind')} {namespace}/{name}" if namespace else f"{tree.get('kind')} {name}"


def get_mapping(tree: Any, *path: str) -> Tree:
    """Return the mapping at a path; an empty one if there is none, or something else."""
    for step in path:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def get_sequence(tree: Any, *path: str) -> list[Any]:
    """Return the list at a path; an empty one if there is none, or something else."""
    value = get_mapping(tree, *path[:-1]).get(path[-1])
    return value if isinstance(value, list) else []
