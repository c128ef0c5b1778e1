"""Runs `railwright explain`: imports what explains the files, or the pod, job or gang, that its words name."""

import argparse
import pathlib
from collections.abc import Sequence

from railwright.cli import output

_POD = ("pod", "pods", "po")  # as for kubectl; write ./pod for a file of this name
_GROUPS = ("job", "gang")  # of which one pod is explained


def explain(arguments: argparse.Namespace) -> int:
    """Return the exit code of the form of the command. Raise UnreadableError and ClusterError."""
    if (subject := find_pod(arguments)) is not None:
        from railwright.cli.explanation import pod

        return pod.explain(arguments, *subject)
    from railwright.cli.explanation import manifest

    return manifest.explain(arguments)


def find_pod(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return what `explain` got instead of files: "" and a pod, or `job` or `gang` and its name; None for files.

    Raises UnreadableError for a mixture.
    """
    words: Sequence[str] = arguments.files
    kind, slash, name = words[0].partition("/") if words else ("", "", "")
    form = kind if kind in _GROUPS and name and not pathlib.Path(words[0]).exists() else ""
    if kind not in _POD and not form:
        _reject(arguments, ("token_file",), "explain pod/NAME")
        return None
    names = [name, *words[1:]] if slash else words[1:]
    if len(names) > 1:
        raise output.UnreadableError(f"explain {' '.join(words)}: give one pod, as pod/NAME -n NAMESPACE")
    _reject(arguments, ("policy", "snapshot", "filename", "recursive"), "explain FILE")
    return form, names[0] if names else ""


def _reject(arguments: argparse.Namespace, given: Sequence[str], form: str) -> None:
    """Raise UnreadableError for options of the other form."""
    present = [f"--{option.replace('_', '-')}" for option in given if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")
