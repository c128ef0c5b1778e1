"""Which kubeconfig a command goes by: the one that was named, else what kubectl would take.

Owns that choice and the sentence where there is none. Reads no file.
"""

import os
import pathlib

from railwright.cli import output

SNAPSHOT = "look at a file: --snapshot FILE --policy FILE"  # what else the commands that show a fabric go by


def found() -> str | None:
    """The files kubectl would take, merged as it merges them; None where none exists."""
    there = [path for path in (pathlib.Path(each).expanduser() for each in _named()) if path.exists()]
    return os.pathsep.join(map(str, there)) or None


def chosen(given: str | None, instead: str = "") -> str | None:
    """`given`, else what kubectl would take; None in a pod without one, whose own account serves.

    Raises UnreadableError where there is no way to a cluster; `instead` is what else the command could go by.
    """
    kubeconfig = given or found()
    if kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return kubeconfig
    other = f", or {instead}" if instead else ""
    raise output.UnreadableError(
        f"no kubeconfig ({' and '.join(_named())} does not exist); give --kubeconfig FILE{other}"
    )


def _named() -> list[str]:
    named = [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return named or ["~/.kube/config"]
