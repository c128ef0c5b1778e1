"""Reads and rotates the certificates in a cluster: Secrets, and the caBundles of webhook configurations.

Each write changes only railwright's fields and states the resourceVersion that was read. So the API server rejects the
later of two concurrent writes with 409, and that writer reads again.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from certs import inventory, pki, rotation
from railwright.cluster import client as clients
from railwright.cluster import events, installed_names, watch_wire

CONFIGURATION = installed_names.INSTALLATION  # name of the mutating and of the validating webhook configuration
KINDS: Mapping[str, str] = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_LABELS = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/managed-by": "railwright-certs"}
_GROUP_VERSION = "admissionregistration.k8s.io/v1"
_MERGE, _JSON = "application/merge-patch+json", "application/json-patch+json"
_APPLY, _MANAGER = "application/apply-patch+yaml", "railwright-certs"
CONFLICTS = frozenset({409, 422})  # conflict of a merge patch; failed version test of a JSON Patch


class _Metadata(watch_wire.Identity, frozen=True, rename="camel"):
    managed_fields: list[Any] | None = None


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """A Kubernetes object of any kind, decoded to its metadata."""

    metadata: _Metadata


class Secret(_Object, frozen=True):
    """A Secret, whose values msgspec decodes from base64. Go encodes an empty value as null."""

    data: dict[str, bytes | None] | None = None

    def read_pair(self, certificate: str = "tls.crt", key: str = "tls.key") -> pki.KeyPair | None:
        """Return a certificate and its key, None if one is missing or empty."""
        data = self.data or {}
        pair = pki.KeyPair(data.get(certificate) or b"", data.get(key) or b"")
        return pair if pair.certificate_pem and pair.key_pem else None

    def get_bundle(self) -> bytes:
        """Return the CA bundle in ca.crt, empty without one."""
        return (self.data or {}).get("ca.crt") or b""


class _Service(msgspec.Struct, frozen=True):
    namespace: str


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    ca_bundle: bytes = b""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _ClientConfig


class WebhookConfiguration(_Object, frozen=True):
    """A mutating or validating webhook configuration."""

    webhooks: list[_Webhook] | None = None


_NO_SECRET = Secret(metadata=_Metadata())


class InstalledCertificates:
    """The Secrets and webhook configurations of an installation, as read at one moment."""

    def __init__(
        self, namespace: str, secrets: Mapping[str, Secret], configurations: Mapping[str, WebhookConfiguration | None]
    ) -> None:
        """Take `secrets` by their names in the inventory and `configurations` by kind; None for a missing one."""
        self.namespace, self.secrets, self.configurations = namespace, secrets, configurations
        # with their indexes; not those of an installation in another namespace, which has another CA
        self._webhooks = {
            kind: [
                (index, hook)
                for index, hook in enumerate((found and found.webhooks) or ())
                if hook.client_config.service is None or hook.client_config.service.namespace == namespace
            ]
            for kind, found in configurations.items()
        }
        ca = secrets.get(inventory.CA, _NO_SECRET)
        trusted = pki.split_bundle(ca.get_bundle())
        self.keyring = rotation.Keyring(ca.read_pair(), ca.read_pair("next.crt", "next.key"), trusted)
        self.certificates = {
            name: rotation.StoredCertificate(secret.read_pair(), secret.get_bundle())
            for name, secret in secrets.items()
            if name != inventory.CA
        }
        self.bundles = {
            f"{kind}/{hook.name}": hook.client_config.ca_bundle
            for kind, hooks in self._webhooks.items()
            for _, hook in hooks
        }

    def list_outdated_webhooks(self, kind: str, pem: bytes) -> list[tuple[int, str]]:
        """Return index and name of each webhook of a configuration whose caBundle is not `pem`."""
        return [(index, hook.name) for index, hook in self._webhooks[kind] if hook.client_config.ca_bundle != pem]

    def list_overwritten_bundles(self) -> Iterator[tuple[events.InvolvedObject, tuple[str, ...], tuple[str, ...]]]:
        """Yield each webhook configuration with a caBundle that is not the keyring's.

        With it are the names of the webhooks with such a caBundle, and the other field managers that write caBundles.
        """
        for kind, configuration in self.configurations.items():
            names = tuple(name for _, name in self.list_outdated_webhooks(kind, self.keyring.bundle))
            if configuration is not None and names:
                metadata = configuration.metadata
                involved = events.InvolvedObject(kind, _GROUP_VERSION, "", metadata.name, metadata.uid)
                yield involved, names, _list_bundle_managers(metadata, names)


def _list_bundle_managers(metadata: _Metadata, hooks: Collection[str]) -> tuple[str, ...]:
    """Return the field managers that own the caBundle of one of these webhooks, except this program."""
    keys = {msgspec.json.encode({"name": hook}).decode() for hook in hooks}
    managers = []
    for entry in metadata.managed_fields or ():
        fields = (entry.get("fieldsV1") or {}).get("f:webhooks") or {}
        owned = [fields.get(f"k:{key}") or {} for key in keys]
        if any("f:caBundle" in (hook.get("f:clientConfig") or {}) for hook in owned):
            managers.append(str(entry.get("manager")))
    return tuple(sorted({*managers} - {clients.USER_AGENT}))


async def read_certificates(client: clients.Client, namespace: str, names: Sequence[str]) -> InstalledCertificates:
    """Read the Secrets with these names of the inventory, and both webhook configurations. Raises ClusterError."""
    secrets = {
        name: await watch_wire.find_object(client, _build_secret_path(namespace, name), Secret) or _NO_SECRET
        for name in names
    }
    configurations = {
        kind: await watch_wire.find_object(client, _build_webhook_configuration_path(kind), WebhookConfiguration)
        for kind in KINDS
    }
    return InstalledCertificates(namespace, secrets, configurations)


async def _write_step(client: clients.Client, state: InstalledCertificates, step: rotation.Step) -> None:
    """Write the objects of a step, one by one. Raises ApiError 409 or 422 if an object has changed since it was read.

    Secrets come first, so that they are written even if a caBundle cannot be.
    """
    if step.keyring is not None:
        await _write_secret(client, state, inventory.CA, _format_keyring(step.keyring))
    for name, stored in step.certificates.items():
        if stored.pair is not None:
            await _write_secret(client, state, name, {**_format_pair(stored.pair), "ca.crt": stored.trusted})
    for kind in KINDS if step.bundle is not None else ():
        await _write_bundles(client, state, kind, step.bundle or b"")


async def _write_bundles(client: clients.Client, state: InstalledCertificates, kind: str, pem: bytes) -> None:
    """Write the outdated caBundles of a webhook configuration, and no other field."""
    configuration, outdated = state.configurations.get(kind), state.list_outdated_webhooks(kind, pem)
    if configuration is None or not outdated:
        return
    # by index: the version test fails if the list has changed since it was read
    version = configuration.metadata.resource_version
    version_test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    paths = [f"/webhooks/{index}/clientConfig/caBundle" for index, _ in outdated]
    changes = [version_test, *({"op": "add", "path": path, "value": pem} for path in paths)]
    await client.patch(_build_webhook_configuration_path(kind), changes, _JSON)


async def _write_secret(
    client: clients.Client, state: InstalledCertificates, name: str, data: Mapping[str, bytes | None]
) -> None:
    """Create or change one Secret. None as a value deletes the key."""
    old, path = state.secrets[name], _build_secret_path(state.namespace, name)
    if old is _NO_SECRET:
        old = await _create_empty_secret(client, path, inventory.SECRETS[name])
    metadata = {"resourceVersion": old.metadata.resource_version}
    await client.patch(path, {"metadata": metadata, "data": data}, _MERGE)  # bytes become base64


async def _create_empty_secret(client: clients.Client, path: str, name: str) -> Secret:
    """Create an empty Secret, and return it. Raises ApiError 409 if another process has filled it meanwhile.

    Uses server-side apply, because RBAC cannot limit a POST by resource name.
    """
    empty = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "labels": _LABELS},
        "data": {"tls.crt": "", "tls.key": ""},  # required by this type
    }
    answer = await client.patch(f"{path}?fieldManager={_MANAGER}", empty, _APPLY)
    return watch_wire.decode_object(client, path, answer, Secret)


def _build_secret_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets/{inventory.SECRETS[name]}"


def _build_webhook_configuration_path(kind: str) -> str:
    return f"/apis/{_GROUP_VERSION}/{KINDS[kind]}/{CONFIGURATION}"


def _format_pair(
    pair: pki.KeyPair | None, certificate: str = "tls.crt", key: str = "tls.key"
) -> dict[str, bytes | None]:
    return {certificate: pair.certificate_pem if pair else None, key: pair.key_pem if pair else None}


def _format_keyring(keyring: rotation.Keyring) -> dict[str, bytes | None]:
    # empty instead of absent without a CA, because kubernetes.io/tls requires both keys
    signer = keyring.active_ca or pki.KeyPair(b"", b"")
    next_pair = _format_pair(keyring.next_ca, "next.crt", "next.key")
    return {**_format_pair(signer), **next_pair, "ca.crt": keyring.bundle}


class Rotator:
    """Rotates the certificates of one namespace, one step at a time. `hosts`: additional names of the servers."""

    def __init__(
        self,
        client: clients.Client,
        namespace: str,
        hosts: Sequence[str],
        overlap: dt.timedelta,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._client, self._namespace, self._hosts, self._overlap, self._now = client, namespace, hosts, overlap, now
        self.state: InstalledCertificates | None = None

    async def make_step(self, *, renew_ca: bool = False) -> rotation.Step | rotation.Wait:
        """Read the certificates, and write the next step if it is due. Return the step, or how long to wait.

        Raises ClusterError. After an ApiError with a status in CONFLICTS, call again.
        """
        specs = inventory.list_specs(self._namespace, more=self._hosts, has_extender=await self._has_extender())
        self.state = await read_certificates(
            self._client, self._namespace, [inventory.CA, *(spec.name for spec in specs)]
        )
        stored = self.state.keyring, self.state.certificates, self.state.bundles
        result = rotation.plan_step(rotation.Situation(*stored, specs, self._now(), self._overlap, renew_ca))
        if isinstance(result, rotation.Step):
            await _write_step(self._client, self.state, result)
        return result

    async def _has_extender(self) -> bool:
        """Return True if the extender's Service exists.

        The Service shows that Helm or kubectl has created the Secrets, which precede it. A Secret that the rotator made
        first would have no Helm metadata, and `helm upgrade` would refuse to take it over.
        """
        path = f"/api/v1/namespaces/{self._namespace}/services/{installed_names.EXTENDER}"
        return await watch_wire.find_object(self._client, path, _Object) is not None
