"""Certificates in a cluster: Secrets that hold them, webhook configurations that trust them.

Owns which fields of those objects are ours, and changes only them. Refuses to know what a certificate says and
where an API connection comes from: it is handed a `kubernetes_asyncio` client.
"""

import base64
import dataclasses
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from kubernetes_asyncio import client

from certs import issue

SECRETS = {"ca": "railwright-ca", "webhook": "railwright-webhook-tls", "extender": "railwright-extender-tls"}
CONFIGURATION = "railwright"  # the name of our mutating and of our validating configuration
_LABELS = {"app.kubernetes.io/name": "railwright", "app.kubernetes.io/managed-by": "railwright-certs"}


@dataclasses.dataclass(frozen=True)
class Trust:
    """What happened to one webhook configuration; `found` is False where the cluster has none."""

    kind: str
    found: bool
    filled: tuple[str, ...] = ()  # webhooks whose caBundle was written now
    foreign: tuple[str, ...] = ()  # webhooks in our configuration that call someone else: not touched


async def read(api: client.ApiClient, namespace: str) -> dict[str, issue.Pair]:
    """Return the pairs of our Secrets in `namespace` by bundle name; Secrets that are missing are left out."""
    core = client.CoreV1Api(api)
    pairs: dict[str, issue.Pair] = {}
    for name, secret in SECRETS.items():
        found = await _or_none(core.read_namespaced_secret(secret, namespace))
        data = (found.data if found is not None else None) or {}
        if "tls.crt" in data and "tls.key" in data:
            certificate, key = (base64.b64decode(data[part]) for part in ("tls.crt", "tls.key"))
            pairs[name] = issue.Pair(certificate, key)
    return pairs


async def write(api: client.ApiClient, namespace: str, pairs: Mapping[str, issue.Pair]) -> None:
    """Create or update our Secrets (kubernetes.io/tls with ca.crt) from the pairs of the bundle.

    The authority goes first and is only ever created or replaced by the caller's decision: should another run
    have created it meanwhile, the API server's 409 is raised and nothing else is written.
    """
    core = client.CoreV1Api(api)
    authority = pairs["ca"].certificate_pem
    for name, secret in SECRETS.items():
        body = _secret(secret, pairs[name], authority)
        old = await _or_none(core.read_namespaced_secret(secret, namespace))
        if old is None:
            await core.create_namespaced_secret(namespace, body)  # type: ignore[arg-type]  # it takes a plain dict too
        elif old.data != body["data"]:
            change = {"metadata": {"resourceVersion": old.metadata.resource_version}, "data": body["data"]}
            await core.patch_namespaced_secret(secret, namespace, change)


async def trust(
    api: client.ApiClient, namespace: str, *, authority: bytes, hosts: Collection[str]
) -> tuple[Trust, Trust]:
    """Fill `caBundle` of the webhooks in our two configurations that call us; touch nothing else.

    A webhook calls us when its service is in `namespace`, or when the host of its URL is one of `hosts`.
    """
    registration = client.AdmissionregistrationV1Api(api)
    mutating = await _fill(
        "MutatingWebhookConfiguration",
        registration.read_mutating_webhook_configuration,
        registration.patch_mutating_webhook_configuration,
        (authority, namespace, frozenset(hosts)),
    )
    validating = await _fill(
        "ValidatingWebhookConfiguration",
        registration.read_validating_webhook_configuration,
        registration.patch_validating_webhook_configuration,
        (authority, namespace, frozenset(hosts)),
    )
    return mutating, validating


def is_ours(client_config: Any, namespace: str, hosts: Collection[str]) -> bool:
    """True when a webhook's clientConfig (V1 model) leads to our service or to one of our hosts."""
    if client_config.service is not None:
        return bool(client_config.service.namespace == namespace)
    return urllib.parse.urlsplit(client_config.url or "").hostname in hosts


async def _fill(
    kind: str,
    read_one: Callable[[str], Awaitable[Any]],
    patch_one: Callable[[str, list[dict[str, Any]]], Awaitable[Any]],
    ours: tuple[bytes, str, frozenset[str]],
) -> Trust:
    authority, namespace, hosts = ours
    found = await _or_none(read_one(CONFIGURATION))
    if found is None:
        return Trust(kind, found=False)
    bundle = base64.b64encode(authority).decode()
    filled: dict[int, str] = {}
    foreign: list[str] = []
    for index, webhook in enumerate(found.webhooks or ()):
        if not is_ours(webhook.client_config, namespace, hosts):
            foreign.append(webhook.name)
        elif webhook.client_config.ca_bundle != bundle:
            filled[index] = webhook.name
    if filled:
        await patch_one(CONFIGURATION, _patch(found.metadata.resource_version, filled, bundle))
    return Trust(kind, found=True, filled=tuple(filled.values()), foreign=tuple(foreign))


def _patch(version: str, indexes: Collection[int], bundle: str) -> list[dict[str, Any]]:
    """Build a JSON Patch by index; the version test refuses it if the list has moved since it was read."""
    unmoved = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    paths = [f"/webhooks/{index}/clientConfig/caBundle" for index in indexes]
    return [unmoved, *({"op": "add", "path": path, "value": bundle} for path in paths)]


def _secret(name: str, pair: issue.Pair, authority: bytes) -> dict[str, Any]:
    parts = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem, "ca.crt": authority}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "labels": _LABELS},
        "data": {key: base64.b64encode(value).decode() for key, value in parts.items()},
    }


async def _or_none(request: Awaitable[Any]) -> Any | None:
    try:
        return await request
    except client.ApiException as error:
        if error.status == 404:
            return None
        raise
