"""Reads a policy from a file, or from the ConfigMap in a cluster. Slow to import: see `policies`."""

import asyncio

import msgspec

from railwright.cli import kubeconfig, output
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, manifests, policies, resources, watch_wire
from railwright.fabric import names
from railwright.fabric.policy import model


def read_file(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    return _require_valid(
        manifests.read(output.read_text(path)), path, f"correct it and check it with railwright policy validate {path}"
    )


def read_cluster(kubeconfig_path: str, context: str | None) -> model.Policy:
    """Return the policy in the cluster. Raise UnreadableError or ClusterError."""
    chosen = kubeconfig.choose(kubeconfig_path, "read the policy from a file: --policy FILE")

    async def fetch_once() -> model.Policy:
        client = await clients.connect(chosen, context=context)
        try:
            return await fetch(client)
        finally:
            await client.close()

    return asyncio.run(fetch_once())


class _ConfigMap(msgspec.Struct):
    """The fields by which an answer is recognized as a ConfigMap."""

    metadata: dict[str, msgspec.Raw]
    data: dict[str, str] | None = None


async def fetch(client: clients.Client) -> model.Policy:
    """Return the policy in the cluster of a client. Raise UnreadableError or ClusterError."""
    path = f"{resources.POLICY.path}/{names.POLICY_CONFIGMAP}"
    try:
        body = await client.get(path)
        text = (msgspec.json.decode(body, type=_ConfigMap).data or {}).get(names.POLICY_KEY, "")
    except errors.ApiError as error:
        if error.foreign or error.status not in (403, 404):
            raise
        raise output.UnreadableError(f"{error.sentence}. To read it from a file: --policy FILE") from None
    except watch_wire.UNREADABLE as error:
        raise failures.foreign(client.host, path, str(error)) from None
    configmap = f"{names.NAMESPACE}/{names.POLICY_CONFIGMAP}"
    fix = f"correct it with kubectl -n {names.NAMESPACE} edit configmap {names.POLICY_CONFIGMAP}"
    return _require_valid(policies.read(text), f"ConfigMap {configmap}", fix)


def _require_valid(result: model.Policy | policies.Rejected, source: str, fix: str) -> model.Policy:
    if not isinstance(result, policies.Rejected):
        return result
    first, *others = [output.visible(error.format_in(source)) for error in result.errors]
    if not others:
        raise output.UnreadableError(f"{first}; {fix}")
    raise output.UnreadableError("\n  ".join([f"the policy is invalid; {fix}:", first, *others]))
