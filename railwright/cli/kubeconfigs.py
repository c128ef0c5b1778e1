"""Finds the kubeconfig files of a user, as kubectl does. Reads none of them, and imports the standard library only."""

import os
import pathlib


def find() -> str | None:
    """Return the existing files that kubectl would merge, joined by os.pathsep; None if none exists."""
    paths = [path for path in (pathlib.Path(name).expanduser() for name in list_names()) if path.exists()]
    return os.pathsep.join(map(str, paths)) or None


def list_names() -> list[str]:
    """Return the files that kubectl would merge, whether they exist or not."""
    names = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return names or ["~/.kube/config"]
