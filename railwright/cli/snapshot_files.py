"""Reads a snapshot file for a command. An empty file is an error, because its empty output would look like success."""

from typing import Any

from railwright.cli import output
from railwright.cluster import snapshots


def read(path: str, option: str = "--snapshot", *, needs: str = "") -> dict[str, list[Any]]:
    """Return views by kind. Raises UnreadableError for a file without any object, or without one of kind `needs`."""
    try:
        objects = snapshots.read(output.read_text(path))
    except snapshots.SnapshotError as error:
        raise output.UnreadableError(f"{option} {path}: {error}") from None
    if not any(objects.values()) or (needs and not objects[needs]):
        missing = needs or "Node, Pod or other object that railwright reads"
        raise output.UnreadableError(
            f"{option} {path}: contains no {missing}; write it with kubectl get nodes,pods,namespaces -A -o yaml"
        )
    return objects
