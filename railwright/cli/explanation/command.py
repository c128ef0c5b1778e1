"""Runs `railwright explain`: imports the function for files, or for a pod, job or gang."""

import argparse
from collections.abc import Sequence

from railwright.cli import job_pods, output


def explain(arguments: argparse.Namespace) -> int:
    """Return the exit code of the form of the command. Raise UnreadableError and ClusterError."""
    if (subject := find_object(arguments)) is not None:
        from railwright.cli.explanation import pod

        return pod.explain(arguments, *subject)
    from railwright.cli.explanation import manifest

    return manifest.explain(arguments)


def find_object(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return (kind, name) of an object, None for files. Raise UnreadableError also for options of the other form."""
    subject = job_pods.parse_object("explain", arguments.files)
    if subject is None:
        _reject_options(arguments, ("token_file",), "explain pod/NAME")
    else:
        _reject_options(arguments, ("policy", "snapshot", "filename", "recursive"), "explain FILE")
    return subject


def _reject_options(arguments: argparse.Namespace, given: Sequence[str], form: str) -> None:
    """Raise UnreadableError if options are given that only `form` of the command has."""
    present = [f"--{option.replace('_', '-')}" for option in given if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only `{form}` has it; leave it out")
