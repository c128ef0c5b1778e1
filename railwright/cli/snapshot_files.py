"""A snapshot file for a command that reads it once and ends.

Owns that an empty one is an error: a server may wait for objects to come, a command would look as if all were well.
"""

from typing import Any

from railwright.cli import output
from railwright.cluster import snapshots


def read(path: str, option: str = "--snapshot", *, needs: str = "") -> dict[str, list[Any]]:
    """Return views by kind. Raises UnreadableError for a file without any object, or without one of kind `needs`."""
    try:
        found = snapshots.read(output.read_text(path))
    except snapshots.SnapshotError as error:
        raise output.UnreadableError(f"{option} {path}: {error}") from None
    if not any(found.values()) or (needs and not found[needs]):
        what = needs or "object that a fabric or a pod is made of"
        raise output.UnreadableError(
            f"{option} {path}: holds no {what}; kubectl get nodes,pods,namespaces -A -o yaml writes them"
        )
    return found
