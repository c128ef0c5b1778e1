"""Starts `railwright check`: connects, finds the installation, and only then imports the checks.

The checks name the objects of the installation in constants.
"""

import argparse
import functools
import os

from railwright.cli import cluster_access, output
from railwright.cluster import client as clients
from railwright.cluster import errors

_CALL_SECONDS = 15.0  # per API call; a user is waiting


def run_check(arguments: argparse.Namespace) -> int:
    """Run `railwright check` and return its exit code. With --explain, no cluster is needed."""
    if arguments.explain is not None:
        from railwright.cli.checking import command

        return command.explain_row(arguments.explain)
    return cluster_access.run_with_client(
        arguments, functools.partial(_check_cluster, arguments), call_seconds=_CALL_SECONDS
    )


async def _check_cluster(arguments: argparse.Namespace, client: clients.Client) -> int:
    problem = ""
    with output.show_progress("finding the installation"):
        try:
            await cluster_access.select_installation(client, arguments.namespace)
        except errors.UnreachableError as error:
            problem = error.sentence
        if arguments.namespace:
            os.environ["RAILWRIGHT_NAMESPACE"] = arguments.namespace
        from railwright.cli.checking import command
    return await command.check_installation(client, arguments, problem)
