"""Starts `railwright check`: connects, finds the installation, and only then imports the checks.

The checks name the objects of the installation in constants.
"""

import argparse
import asyncio

from railwright.cli import cluster_access, options, output
from railwright.cluster import client as clients
from railwright.cluster import errors

_CALL_SECONDS = 15.0  # per API call; a user is waiting


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code of `checking.command.check`, or explain rows without a cluster."""
    if arguments.explain is not None:
        from railwright.cli.checking import printing

        return printing.explain(arguments.explain)
    return asyncio.run(_check(arguments))


async def _check(arguments: argparse.Namespace) -> int:
    async with cluster_access.connect(options.get_cluster(arguments), call_seconds=_CALL_SECONDS) as client:
        with output.show_progress("finding the installation"):
            problem = await _select_installation(client, arguments)
            from railwright.cli.checking import command
            from railwright.cluster import installed_names

            arguments.namespace = arguments.namespace or installed_names.NAMESPACE
        return await command.check(client, arguments, problem)


async def _select_installation(client: clients.Client, arguments: argparse.Namespace) -> str:
    """Set the namespace of the installation in `arguments`. Return why the API server does not answer, else ""."""
    if arguments.pre:  # before the installation there is none to find
        return ""
    try:
        arguments.namespace = await cluster_access.select_installation(client, arguments.namespace)
    except errors.UnreachableError as error:
        return error.sentence
    return ""
