"""Selects the kubeconfig of a command: the one given, or else the one that kubectl would use. Reads no file."""

import os
import pathlib

from railwright.cli import output

SNAPSHOT = "read files: --snapshot FILE --policy FILE"  # alternative of the commands that show a fabric


def find_default() -> str | None:
    """Return the existing files that kubectl would merge, joined by os.pathsep; None if none exists."""
    paths = [path for path in (pathlib.Path(name).expanduser() for name in _list_names()) if path.exists()]
    return os.pathsep.join(map(str, paths)) or None


def choose(given: str | None, instead: str = "") -> str | None:
    """Return `given`, or else what kubectl would use; None in a pod, which uses its ServiceAccount.

    Raises UnreadableError without any of these. `instead` names an alternative for its message.
    """
    kubeconfig = given or find_default()
    if kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return kubeconfig
    other = f", or {instead}" if instead else ""
    raise output.UnreadableError(
        f"no kubeconfig ({' and '.join(_list_names())} does not exist); give --kubeconfig FILE{other}"
    )


def _list_names() -> list[str]:
    names = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return names or ["~/.kube/config"]
