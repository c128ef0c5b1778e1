"""Our webhook configurations in the API server, by URL, and the knowledge that they are in force."""

import base64
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from plane import api, waiting

_MANIFEST = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "base" / "admission.yaml"

FABRIC = "railwright.io/fabric"
_KIND = "MutatingWebhookConfiguration"
STRICT = {  # nothing but us refuses such a pod, whatever the namespace enforces
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NO_FABRIC = "no-such-fabric-probe"  # refused by a webhook that answers; an unreachable one is a refusal too


def document(name: str, port: int, authority: bytes, namespaces: Sequence[str]) -> dict[str, Any]:
    """Return the configuration: pods by label, failing closed; bindings, failing open. Only in `namespaces`."""
    scope = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    common = {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "namespaceSelector": {"matchExpressions": [scope]},
    }

    def rules(resource: str) -> list[dict[str, Any]]:
        return [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}]

    def config(path: str) -> dict[str, str]:
        return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": base64.b64encode(authority).decode()}

    pods = {
        **common,
        "sideEffects": "NoneOnDryRun",
        "name": "pods.railwright.io",
        "clientConfig": config("/mutate/pods"),
        "rules": rules("pods"),
        "objectSelector": {"matchExpressions": [{"key": FABRIC, "operator": "Exists"}]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
    }
    bindings = {
        **common,
        "name": "bindings.railwright.io",
        "clientConfig": config("/mutate/bindings"),
        "rules": rules("pods/binding"),
        "failurePolicy": "Ignore",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": _KIND,
        "metadata": {"name": name},
        "webhooks": [pods, *_workloads(config("/mutate/workloads"), scope), bindings],
    }


def _workloads(client_config: dict[str, str], scope: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the manifest's entries for workloads, with its labels and CEL, and with our URL and namespaces."""
    configuration = next(yaml.safe_load_all(_MANIFEST.read_text()))
    hooks = configuration["webhooks"]
    matches = [hook for hook in hooks if hook["clientConfig"]["service"]["path"].endswith("workloads")]
    for hook in matches:
        selector = hook["namespaceSelector"]
        hook["namespaceSelector"] = {"matchExpressions": [*selector["matchExpressions"], scope]}
        hook["clientConfig"] = client_config
    return matches


def shipped(port: int, authority: bytes) -> dict[str, Any]:
    """Return the configuration of the manifests, whole, for every namespace it is for; ours is only the URL."""
    made: dict[str, Any] = next(yaml.safe_load_all(_MANIFEST.read_text()))
    bundle = base64.b64encode(authority).decode()
    for hook in made["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return made


async def register(client: api.Api, name: str, port: int, authority: bytes, namespaces: Sequence[str]) -> None:
    """Create or replace the configuration and wait until the API server calls it."""
    configuration = document(name, port, authority, namespaces)
    present = await client.get_or_none(_KIND, name)
    if present is None:
        await client.create(configuration)
    else:
        configuration["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]
        await client.replace(configuration)
    for namespace in namespaces:
        await _until(client, namespace, called=True)


async def unregister(client: api.Api, name: str, namespaces: Sequence[str]) -> None:
    """Delete the configuration and wait until the API server has stopped calling it."""
    await client.delete(_KIND, name)
    for namespace in namespaces:
        await _until(client, namespace, called=False)


async def _until(client: api.Api, namespace: str, *, called: bool) -> None:
    """Try pods that nothing keeps: with the webhook in force an unknown fabric is refused, without it it is not."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "webhook-probe", "labels": {FABRIC: _NO_FABRIC}},
        "spec": {"containers": [{"name": "probe", "image": "probe", "securityContext": STRICT}]},
    }

    async def is_registered() -> bool:
        try:
            await client.create(pod, namespace=namespace, dry_run=True)
        except api.ApiError:
            return called
        return not called

    words = "in force" if called else "out of force"
    await waiting.wait(is_registered, describe=f"our webhook to be {words} in namespace {namespace}")
