"""The policy for a command: from a file, or from the ConfigMap of the cluster that a kubeconfig names.

Owns both ways and their errors. Knows nothing of what the policy is for.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from railwright.cli import kubeconfig, output
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, manifests, policies, resources, watch_wire
from railwright.fabric import names
from railwright.fabric.policy import model


def from_file(path: str) -> model.Policy:
    """The policy of a file, `-` for standard input. Raises UnreadableError with all that is wrong with it."""
    return _accepted(manifests.read(output.read_text(path)), path)


def from_cluster(given: str, context: str | None) -> model.Policy:
    """Return the policy in force. Raises UnreadableError and ClusterError."""
    account = kubeconfig.chosen(given, "take the policy from a file: --policy FILE")

    async def read() -> model.Policy:
        client = await clients.connect(account, context=context)
        try:
            return await fetched(client)
        finally:
            await client.close()

    return asyncio.run(read())


class _ConfigMap(msgspec.Struct):
    """What tells a ConfigMap from the answer of another program."""

    metadata: dict[str, msgspec.Raw]
    data: dict[str, str] | None = None


async def fetched(client: clients.Client) -> model.Policy:
    """Return the policy in force, by a client. Raises UnreadableError and ClusterError."""
    path = f"{resources.POLICY.path}/{names.POLICY_CONFIGMAP}"
    try:
        body = await client.get(path)
        text = (msgspec.json.decode(body, type=_ConfigMap).data or {}).get(names.POLICY_KEY, "")
    except errors.ApiError as error:
        if error.foreign or error.status not in (403, 404):
            raise
        raise output.UnreadableError(f"{error.sentence}. From a file: --policy FILE") from None
    except watch_wire.UNREADABLE as error:
        raise failures.foreign(client.host, path, str(error)) from None
    return _accepted(policies.read(text), f"ConfigMap {names.NAMESPACE}/{names.POLICY_CONFIGMAP}")


def fabric(policy: model.Policy, name: str) -> str:
    """The name of a fabric of the policy; "" is its default. Raises UnreadableError with those there are."""
    known = policy.document.fabrics
    chosen = name or policy.document.default_fabric or (next(iter(known)) if len(known) == 1 else "")
    if chosen not in known:
        said = f"--fabric {name}: is none of the policy" if name else "--fabric NAME is missing"
        raise output.UnreadableError(f"{said}; there are {', '.join(known)}")
    return chosen


def _accepted(result: model.Policy | policies.Rejected, where: str) -> model.Policy:
    if not isinstance(result, policies.Rejected):
        return result
    raise output.UnreadableError("\n  ".join(["the policy would be refused:", *_lines(result.errors, where)]))


def _lines(wrong: Sequence[policies.PolicyError], where: str) -> Sequence[str]:
    places = [where if each.line is None else f"{where}:{each.line}" for each in wrong]
    return [
        output.visible(": ".join(filter(None, (place, each.path, each.message))))
        for place, each in zip(places, wrong, strict=True)
    ]
