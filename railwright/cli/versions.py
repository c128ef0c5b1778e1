"""Prints the versions of the command and of the servers in a cluster. `railwright check` compares them."""

import argparse
import asyncio
from typing import Any

from railwright.cli import cluster_access, formats, output, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import installed_names, policies, watch_wire
from railwright.fabric import version
from railwright.fabric.workloads import frameworks

_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{installed_names.NAMESPACE}/deployments"
_NO_POLICY = f"none: there is no {policy_sources.CONFIG_MAP}"
_NO_CLUSTER = "show only the version of this command: --client"


def run(arguments: argparse.Namespace) -> int:
    """Return 0. Raise UnreadableError or ClusterError, after printing the client's version, if a part is unreadable."""
    versions: dict[str, str | None] = {"client": version.VERSION}  # None for what the cluster does not have
    try:
        if not arguments.client:
            versions |= cluster_access.run(arguments, _read, _NO_CLUSTER)
    finally:
        if formats.is_document(arguments.output):
            formats.print_document(versions, arguments.output)
        else:
            for name, value in versions.items():
                text = value or (_NO_POLICY if name == "policy" else "not installed")
                print(f"{name:<10}{output.escape_controls(text)}")
    return output.OK


async def _read(client: clients.Client) -> dict[str, str | None]:
    """Return the images of the servers, and the digest of the policy. Raise UnreadableError if that is invalid."""
    webhook, extender, policy = await asyncio.gather(
        _read_image(client, "webhook"), _read_image(client, "extender"), policy_sources.find(client)
    )
    if isinstance(policy, policies.Rejected):
        where = policy_sources.CONFIG_MAP
        raise output.UnreadableError(f"the policy in {where} is invalid; railwright check lists its errors")
    return {"webhook": webhook, "extender": extender, "policy": policy.digest if policy else None}


async def _read_image(client: clients.Client, server: str) -> str | None:
    """Return the image of a server's main container."""
    path = f"{_DEPLOYMENTS}/{installed_names.INSTALLATION}-{server}"
    deployment = await watch_wire.find_object(client, path, dict[str, Any])
    containers = frameworks.get_list(deployment, "spec", "template", "spec", "containers")
    return next((str(item["image"]) for item in containers if item["name"] == server), None)
