"""Reads the policy for a command from a file, or from the ConfigMap in the cluster of a kubeconfig."""

import asyncio
from collections.abc import Sequence

import msgspec

from railwright.cli import kubeconfig, output
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, manifests, policies, resources, watch_wire
from railwright.fabric import names
from railwright.fabric.policy import model


def from_file(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    return _require_valid(manifests.read(output.read_text(path)), path)


def from_cluster(given: str, context: str | None) -> model.Policy:
    """Return the policy in the cluster. Raise UnreadableError or ClusterError."""
    account = kubeconfig.choose(given, "read the policy from a file: --policy FILE")

    async def read() -> model.Policy:
        client = await clients.connect(account, context=context)
        try:
            return await fetch(client)
        finally:
            await client.close()

    return asyncio.run(read())


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
    return _require_valid(policies.read(text), f"ConfigMap {names.NAMESPACE}/{names.POLICY_CONFIGMAP}")


def fabric(policy: model.Policy, name: str) -> str:
    """Return the name of a fabric of the policy, "" for its default. Raise UnreadableError if it is not defined."""
    fabrics = policy.document.fabrics
    fabric_name = name or policy.document.default_fabric or (next(iter(fabrics)) if len(fabrics) == 1 else "")
    if fabric_name not in fabrics:
        problem = f"--fabric {name}: not defined in the policy" if name else "--fabric NAME is missing"
        raise output.UnreadableError(f"{problem} (defined: {', '.join(fabrics)})")
    return fabric_name


def _require_valid(result: model.Policy | policies.Rejected, source: str) -> model.Policy:
    if not isinstance(result, policies.Rejected):
        return result
    raise output.UnreadableError("\n  ".join(["the policy is invalid:", *_format_errors(result.errors, source)]))


def _format_errors(policy_errors: Sequence[policies.PolicyError], source: str) -> Sequence[str]:
    places = [source if error.line is None else f"{source}:{error.line}" for error in policy_errors]
    return [
        output.visible(": ".join(filter(None, (place, error.path, error.message))))
        for place, error in zip(places, policy_errors, strict=True)
    ]
