"""Reads the policy in the ConfigMap of a cluster. Imports the client of the API server: see `policies`."""

import asyncio

import msgspec

from railwright.cli import cluster_access, options, output, policies
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, installed_names, resources, watch_wire
from railwright.cluster import policies as policy_reader
from railwright.fabric import names
from railwright.fabric.policy import model


def read_cluster(cluster: options.ClusterOptions) -> model.Policy:
    """Return the policy in the cluster. Raise UnreadableError or ClusterError."""

    async def fetch_once() -> model.Policy:
        async with cluster_access.connect(cluster, "read the policy from a file: --policy FILE") as client:
            return await fetch(client)

    return asyncio.run(fetch_once())


class _ConfigMap(msgspec.Struct):
    """The fields by which an answer is recognized as a ConfigMap."""

    metadata: dict[str, msgspec.Raw]
    data: dict[str, str] | None = None


async def fetch(client: clients.Client) -> model.Policy:
    """Return the policy in the cluster of a client. Raise UnreadableError or ClusterError."""
    path = f"{resources.POLICY.path}/{installed_names.POLICY}"
    try:
        body = await client.get(path)
        text = (msgspec.json.decode(body, type=_ConfigMap).data or {}).get(names.POLICY_KEY, "")
    except errors.ApiError as error:
        if error.foreign or error.status not in (403, 404):
            raise
        raise output.UnreadableError(f"{error.sentence}. To read it from a file: --policy FILE") from None
    except watch_wire.UNREADABLE as error:
        raise failures.build_foreign(client.host, path, str(error)) from None
    configmap = f"{installed_names.NAMESPACE}/{installed_names.POLICY}"
    fix = f"correct it with kubectl -n {installed_names.NAMESPACE} edit configmap {installed_names.POLICY}"
    return policies.require_valid(policy_reader.read(text), f"ConfigMap {configmap}", fix)
