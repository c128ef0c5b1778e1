"""Collects the RFC 6902 operations that change a pod, and creates each parent before its child.

A patch that cannot be applied is an error to the user, whatever `failurePolicy` is.
"""

from typing import Any

from railwright.fabric import views

Operation = dict[str, Any]


def escape(key: str) -> str:
    """Escape a key for use in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class PodPatch:
    """The operations so far. `pod` is the pod before any of them, `base` its JSON pointer."""

    def __init__(self, pod: views.Pod, base: str = "") -> None:
        self.operations: list[Operation] = []
        self.pod = pod
        self._base = base
        self._created: set[str] = set()

    def add(self, path: str, value: object) -> None:
        """Set the member of a map, or insert an element into a list."""
        self.operations.append({"op": "add", "path": f"{self._base}{path}", "value": value})

    def replace(self, path: str, value: object) -> None:
        """Replace an existing value."""
        self.operations.append({"op": "replace", "path": f"{self._base}{path}", "value": value})

    def remove(self, path: str) -> None:
        """Remove an existing value."""
        self.operations.append({"op": "remove", "path": f"{self._base}{path}"})

    def append(self, path: str, existing: object, value: object) -> None:
        """Append to a list. `existing` is the list in the pod, None if it has none."""
        self.add(f"{self.ensure(path, existing, [])}/-", value)

    def ensure(self, path: str, existing: object, empty: object) -> str:
        """Create a map or list unless the pod or an earlier operation has it, and return its path."""
        if existing is None and path not in self._created:
            self._created.add(path)
            self.add(path, empty)
        return path
