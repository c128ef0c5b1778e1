"""Registers our webhooks in the API server by URL, and waits until it calls them."""

import base64
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from plane import api, manifests, waiting

_MANIFEST = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "base" / "admission.yaml"
_KIND = "MutatingWebhookConfiguration"
STRICT = {  # nothing but us refuses such a pod, whatever the namespace enforces
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NO_FABRIC = "no-such-fabric-probe"  # refused by a webhook that answers; an unreachable one is a refusal too


def read_shipped(port: int, authority: bytes, kind: str = _KIND) -> dict[str, Any]:
    """Return a webhook configuration of the manifests with another URL."""
    trees = yaml.safe_load_all(_MANIFEST.read_text())
    made: dict[str, Any] = next(tree for tree in trees if tree["kind"] == kind)
    bundle = base64.b64encode(authority).decode()
    for hook in made["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return made


def build_webhook_configuration(name: str, port: int, authority: bytes, namespaces: Sequence[str]) -> dict[str, Any]:
    """Return the shipped webhook configuration under this name, limited to `namespaces`.

    Its timeoutSeconds are 5, because test machines are slow.
    """
    made = read_shipped(port, authority)
    scope = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    for hook in made["webhooks"]:
        hook["namespaceSelector"]["matchExpressions"].append(scope)
        hook["timeoutSeconds"] = 5
    return made | {"metadata": {"name": name}}


async def register(client: api.Api, name: str, port: int, authority: bytes, namespaces: Sequence[str]) -> None:
    """Create or replace the configuration, and wait until the API server calls the webhook."""
    await client.put(build_webhook_configuration(name, port, authority, namespaces))
    for namespace in namespaces:
        await _wait_called(client, namespace, called=True)


async def unregister(client: api.Api, name: str, namespaces: Sequence[str]) -> None:
    """Delete the configuration, and wait until the API server has stopped calling the webhook."""
    await client.delete(_KIND, name)
    for namespace in namespaces:
        await _wait_called(client, namespace, called=False)


async def _wait_called(client: api.Api, namespace: str, *, called: bool) -> None:
    """Dry-run pods of an unknown fabric until the webhook refuses them or, with `called` False, no longer does."""
    pod = manifests.pod("webhook-probe", _NO_FABRIC, limits={}, container={"securityContext": STRICT})
    answer: object = None

    async def is_registered() -> bool:
        nonlocal answer
        try:
            await client.create(pod, namespace=namespace, dry_run=True)
        except api.ApiError as error:
            answer = error
            return called
        answer = f"created, with the warnings {client.warnings}"
        return not called

    async def describe() -> str:
        kept = await client.list(_KIND)
        versions = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in kept}
        words = "in force" if called else "out of force"
        return (
            f"our webhook to be {words} in namespace {namespace}; the API server's configurations are {versions}, and "
            f"its newest answer is: {answer}"
        )

    # the API server's own watch of these configurations may have to be opened again, after a pause of half a minute
    await waiting.wait(is_registered, seconds=120, describe=describe)
