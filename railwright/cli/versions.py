"""Prints the versions of the command and of what runs in a cluster. It judges nothing; `railwright check` does."""

import argparse
import asyncio
from collections.abc import Iterator

import msgspec

from railwright.cli import cluster_access, formats, options, output, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import installed_names, policies
from railwright.fabric import version

_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{installed_names.NAMESPACE}/deployments"
_NOT_INSTALLED = "not installed"
_NO_POLICY = f"none: there is no {policy_sources.CONFIG_MAP}"
_NO_CLUSTER = "show only the version of this command: --client"


class Versions(msgspec.Struct, frozen=True):
    """The versions that are shown. A field is None if the object does not exist, and absent if no cluster was read."""

    client: str
    webhook: str | msgspec.UnsetType | None = msgspec.UNSET  # image
    extender: str | msgspec.UnsetType | None = msgspec.UNSET  # image
    policy: str | msgspec.UnsetType | None = msgspec.UNSET  # digest


def run(arguments: argparse.Namespace) -> int:
    """Return 0. Raise UnreadableError or ClusterError, after printing the client's version, if a part is unreadable."""
    versions = Versions(version.VERSION)
    try:
        if not arguments.client:
            versions = cluster_access.run(options.get_cluster(arguments), _read, _NO_CLUSTER)
    finally:
        if formats.is_document(arguments.output):
            formats.print_document(versions, arguments.output)
        else:
            for name, value in _list_lines(versions):
                print(f"{name:<10}{output.escape_controls(value)}")
    return output.OK


def _list_lines(versions: Versions) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each line."""
    yield "client", versions.client
    for name, image in (("webhook", versions.webhook), ("extender", versions.extender)):
        if image is not msgspec.UNSET:
            yield name, image or _NOT_INSTALLED
    if versions.policy is not msgspec.UNSET:
        yield "policy", versions.policy or _NO_POLICY


async def _read(client: clients.Client) -> Versions:
    webhook, extender, policy = await asyncio.gather(
        _read_image(client, "webhook"), _read_image(client, "extender"), _read_policy(client)
    )
    return Versions(version.VERSION, webhook, extender, policy)


async def _read_image(client: clients.Client, server: str) -> str | None:
    """Return the image of a server's own container, not of a sidecar."""
    path = f"{_DEPLOYMENTS}/{installed_names.INSTALLATION}-{server}"
    deployment = await cluster_access.find_object(client, path, cluster_access.Deployment)
    if deployment is None:
        return None
    return next((item.image for item in deployment.spec.template.spec.containers if item.name == server), None)


async def _read_policy(client: clients.Client) -> str | None:
    """Return the digest of the policy, None without a policy. Raise UnreadableError if it is invalid."""
    policy = await policy_sources.find(client)
    if isinstance(policy, policies.Rejected):
        where = policy_sources.CONFIG_MAP
        raise output.UnreadableError(f"the policy in {where} is invalid; railwright check lists its errors")
    return None if policy is None else policy.digest
