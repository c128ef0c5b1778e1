"""Runs `railwright explain`: imports the function for files, or for a pod, job or gang."""

import argparse

from railwright.cli import job_pods, output


def explain_objects(arguments: argparse.Namespace) -> int:
    """Run the form of the command that the arguments select, and return its exit code.

    Raises UnreadableError and ClusterError.
    """
    if (subject := job_pods.parse_object("explain", arguments.files)) is not None:
        from railwright.cli.explanation import pod

        _reject_options(arguments, "explain FILE", "policy", "snapshot", "filename", "recursive")
        return pod.explain_pod(arguments, *subject)
    from railwright.cli.explanation import manifest

    _reject_options(arguments, "explain pod/NAME", "token_file")
    return manifest.explain_manifests(arguments)


def _reject_options(arguments: argparse.Namespace, form: str, *options: str) -> None:
    """Raise UnreadableError if options are given that only another `form` of the command has."""
    given = [f"--{option.replace('_', '-')}" for option in options if getattr(arguments, option)]
    if given:
        raise output.UnreadableError(f"{', '.join(given)}: only `{form}` has this option; leave it out")
