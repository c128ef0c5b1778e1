"""Runs `railwright explain`: finds out which form was given, and imports only what that form needs."""

import argparse
import pkgutil
from collections.abc import Sequence

from railwright.cli import output

_POD = "pod"  # keyword of the second form; write ./pod for a file of this name
_EXPLAIN_FILE = "railwright.cli.explanation.file:explain"
_EXPLAIN_POD = "railwright.cli.explanation.pod:explain"


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code.

    Manifest: 0 if all pods would be admitted, 1 if one would be rejected, 2 for an unreadable file or one without pods.
    Pod: 0 if it is or can be placed optimally, 1 if not, 2 if no extender can be reached.
    """
    if arguments.file == _POD:
        _reject(arguments, ("policy", "snapshot", "full", "svg"), "explain FILE")
        return int(pkgutil.resolve_name(_EXPLAIN_POD)(arguments))
    if arguments.pod is not None:
        raise output.UnreadableError(f"{arguments.file} {arguments.pod}: give one FILE, or: pod NAMESPACE/NAME")
    _reject(arguments, ("extender", "token", "token_file", "ca", "kubeconfig"), "explain pod NAMESPACE/NAME")
    if arguments.policy is None:
        raise output.UnreadableError(f"explain {arguments.file}: --policy FILE is missing")
    return int(pkgutil.resolve_name(_EXPLAIN_FILE)(arguments))


def _reject(arguments: argparse.Namespace, options: Sequence[str], form: str) -> None:
    """Raise UnreadableError for options of the other form."""
    present = [f"--{option.replace('_', '-')}" for option in options if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")
