"""Reads and rotates the certificates in a cluster: Secrets that contain them, webhook configurations that trust them.

Only the fields that railwright owns are changed, and only if the object is still the one that was read: each write
carries the resourceVersion that was read, so of two concurrent writers one gets a 409 and reads again.
"""

import base64
import binascii
import datetime as dt
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from certs import inventory, pki, rotation, schedules
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, watch_wire

CONFIGURATION = installed_names.INSTALLATION  # name of the mutating and of the validating webhook configuration
KINDS: Mapping[str, str] = {
    rotation.MUTATING: "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_LABELS = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/managed-by": "railwright-certs"}
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_MERGE, _JSON = "application/merge-patch+json", "application/json-patch+json"
_APPLY, _MANAGER = "application/apply-patch+yaml", "railwright-certs"
CONFLICTS = frozenset({409, 422})  # conflict of a merge patch; failed version test of a JSON Patch

Document = dict[str, Any]


class ClusterState:
    """The state of the cluster at one moment."""

    def __init__(
        self,
        namespace: str,
        secrets: Mapping[str, Document | None],
        configurations: Mapping[str, Document | None],
        hosts: Collection[str],
    ) -> None:
        """Take `secrets` by their names in the inventory and `configurations` by kind; None for a missing object."""
        self.namespace, self.secrets, self.configurations = namespace, secrets, configurations
        self._hosts = frozenset(hosts)

    @property
    def pairs(self) -> dict[str, pki.Pair]:
        """The certificates and keys by name, without Secrets that are missing or empty."""
        pairs = {name: _read_pair(_read_data(secret)) for name, secret in self.secrets.items()}
        return {name: pair for name, pair in pairs.items() if pair is not None}

    @property
    def observed(self) -> rotation.Observed:
        """The state as the input of a rotation."""
        certificates = {}
        for name, secret in self.secrets.items():
            if name != inventory.CA:
                data = _read_data(secret)
                certificates[name] = rotation.StoredCertificate(_read_pair(data), data.get("ca.crt", b""))
        bundles = {
            f"{kind}/{hook['name']}": _decode_base64(hook["clientConfig"].get("caBundle"))
            for kind in self.configurations
            for _, hook in self.list_own_webhooks(kind)
        }
        return rotation.Observed(_read_keyring(self.secrets.get(inventory.CA)), certificates, bundles)

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """A fingerprint that changes whenever a certificate or a caBundle is written, even with the same content."""
        versions = [_get_resource_version(item) for name, item in self.secrets.items() if name != inventory.CA]
        return (*versions, *(item and item["metadata"].get("generation") for item in self.configurations.values()))

    def list_own_webhooks(self, kind: str) -> list[tuple[int, Document]]:
        """Return the webhooks of a configuration that call railwright, with their indexes in the list."""
        hooks = (self.configurations.get(kind) or {}).get("webhooks") or []
        return [(index, hook) for index, hook in enumerate(hooks) if self._calls_railwright(hook["clientConfig"])]

    def list_outdated(self, kind: str, pem: bytes) -> list[tuple[int, str]]:
        """Return index and name of the webhooks of a configuration that call railwright with another caBundle."""
        return [
            (index, hook["name"])
            for index, hook in self.list_own_webhooks(kind)
            if _decode_base64(hook["clientConfig"].get("caBundle")) != pem
        ]

    def list_overwritten(self, pem: bytes) -> Iterator[tuple[Document, tuple[str, ...], tuple[str, ...]]]:
        """Yield each configuration with a caBundle that is not `pem`: its metadata, the webhooks, the last writers."""
        for kind, document in self.configurations.items():
            names = tuple(name for _, name in self.list_outdated(kind, pem))
            if document is not None and names:
                yield {**document["metadata"], "kind": kind}, names, _list_writers(document, names)

    def _calls_railwright(self, client_config: Document) -> bool:
        """True if the webhook's Service is in the installation's namespace, or its URL has one of the hosts."""
        if (service := client_config.get("service")) is not None:
            return bool(service["namespace"] == self.namespace)
        return urllib.parse.urlsplit(client_config.get("url") or "").hostname in self._hosts


def _list_writers(document: Document, hooks: Collection[str]) -> tuple[str, ...]:
    """Return the field managers that own the caBundle of one of these webhooks, other than this program."""
    keys = {msgspec.json.encode({"name": hook}).decode() for hook in hooks}
    managers = []
    for entry in document["metadata"].get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:webhooks") or {}
        owned = [fields.get(f"k:{key}") or {} for key in keys]
        if any("f:caBundle" in (hook.get("f:clientConfig") or {}) for hook in owned):
            managers.append(str(entry.get("manager")))
    return tuple(sorted({*managers} - {clients.USER_AGENT}))


async def read_state(
    client: clients.Client, namespace: str, names: Sequence[str], hosts: Collection[str]
) -> ClusterState:
    """Read the Secrets of `names` (from the inventory) and both configurations. Raises ClusterError."""
    secrets = {name: await _get_or_none(client, _build_secret_path(namespace, name)) for name in names}
    configurations = {kind: await _get_or_none(client, _build_configuration_path(kind)) for kind in KINDS}
    return ClusterState(namespace, secrets, configurations, hosts)


async def _write(client: clients.Client, state: ClusterState, changes: rotation.Changes) -> None:
    """Apply `changes`, object by object. Raises ApiError 409 or 422 if an object has changed since it was read.

    If a caBundle cannot be written, everything else is written before the error is raised.
    """
    refusals: list[errors.ApiError] = []
    if changes.keyring is not None:
        await _write_secret(client, state, inventory.CA, _format_keyring(changes.keyring))
    for kind in KINDS if changes.bundle is not None else ():
        try:
            await _fill_bundles(client, state, kind, changes.bundle or b"")
        except errors.ApiError as error:
            refusals.append(error)
    for name, stored in changes.certificates.items():
        if stored.pair is not None:
            await _write_secret(client, state, name, {**_format_pair(stored.pair), "ca.crt": stored.trusted})
    for refusal in refusals:
        raise refusal


async def _fill_bundles(client: clients.Client, state: ClusterState, kind: str, pem: bytes) -> None:
    """Write `caBundle` of the webhooks of a configuration that call railwright; change nothing else."""
    document, outdated = state.configurations.get(kind), state.list_outdated(kind, pem)
    if document is None or not outdated:
        return
    # by index: the version test fails if the list has changed since it was read
    version_test = {"op": "test", "path": "/metadata/resourceVersion", "value": _get_resource_version(document)}
    encoded = base64.b64encode(pem).decode()
    paths = [f"/webhooks/{index}/clientConfig/caBundle" for index, _ in outdated]
    changes = [version_test, *({"op": "add", "path": path, "value": encoded} for path in paths)]
    await client.patch(_build_configuration_path(kind), changes, _JSON)


async def _write_secret(
    client: clients.Client, state: ClusterState, name: str, data: Mapping[str, bytes | None]
) -> None:
    """Create or change one Secret. None as a value deletes the key."""
    old, path = state.secrets[name], _build_secret_path(state.namespace, name)
    if all(_read_data(old).get(key) == value for key, value in data.items()):
        return
    encoded = {key: None if value is None else base64.b64encode(value).decode() for key, value in data.items()}
    if old is None:
        old = await _create_empty_secret(client, path, inventory.SECRETS[name])
    await client.patch(path, {"metadata": {"resourceVersion": _get_resource_version(old)}, "data": encoded}, _MERGE)


async def _create_empty_secret(client: clients.Client, path: str, name: str) -> Document:
    """Create a Secret without content, and return it. The API server answers 409 if another process has filled it.

    By server-side apply, because RBAC can limit it by resource name; a POST cannot be limited so.
    """
    empty = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "labels": _LABELS},
        "data": {"tls.crt": "", "tls.key": ""},  # required by this type
    }
    answer = await client.patch(f"{path}?fieldManager={_MANAGER}", empty, _APPLY)
    return _decode_object(client, path, answer)


def _build_secret_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets/{inventory.SECRETS[name]}"


def _build_configuration_path(kind: str) -> str:
    return f"{_GROUP}/{KINDS[kind]}/{CONFIGURATION}"


def _get_resource_version(document: Document | None) -> str:
    return str(document["metadata"]["resourceVersion"]) if document else ""


def _read_data(secret: Document | None) -> dict[str, bytes]:
    return {key: _decode_base64(value) for key, value in ((secret or {}).get("data") or {}).items()}


def _decode_base64(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except binascii.Error:  # cannot happen with an API server, which validates base64
        return b""


def _read_pair(data: Mapping[str, bytes], certificate: str = "tls.crt", key: str = "tls.key") -> pki.Pair | None:
    certificate_pem, key_pem = data.get(certificate), data.get(key)
    return pki.Pair(certificate_pem, key_pem) if certificate_pem and key_pem else None


def _format_pair(pair: pki.Pair | None, certificate: str = "tls.crt", key: str = "tls.key") -> dict[str, bytes | None]:
    return {certificate: pair.certificate_pem if pair else None, key: pair.key_pem if pair else None}


def _read_keyring(secret: Document | None) -> rotation.Keyring:
    data = _read_data(secret)
    next_ca = _read_pair(data, "next.crt", "next.key")
    return rotation.Keyring(_read_pair(data), next_ca, trusted=pki.split_bundle(data.get("ca.crt", b"")))


def _format_keyring(keyring: rotation.Keyring) -> dict[str, bytes | None]:
    signer = keyring.active_ca or pki.Pair(b"", b"")  # empty instead of absent, because kubernetes.io/tls requires both
    next_pair = _format_pair(keyring.next_ca, "next.crt", "next.key")
    return {**_format_pair(signer), **next_pair, "ca.crt": pki.join_bundle(keyring.trusted)}


async def _get_or_none(client: clients.Client, path: str) -> Document | None:
    """Return an object, or None if it does not exist. Raises ClusterError, also if the response is not an object."""
    answer = await clients.find(client, path)
    return None if answer is None else _decode_object(client, path, answer)


def _decode_object(client: clients.Client, path: str, answer: bytes) -> Document:
    try:
        document = msgspec.json.decode(answer)
    except watch_wire.UNREADABLE as error:
        raise errors.build_foreign(client.host, path, str(error)) from error
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise errors.build_foreign(client.host, path)
    return document


class Rotator:
    """Rotates the certificates of one namespace, one step at a time."""

    def __init__(  # noqa: PLR0913 - the parameters of an installation, all by name
        self,
        client: clients.Client,
        namespace: str,
        specs: Sequence[inventory.CertificateSpec],
        *,
        schedule: schedules.Schedule,
        clock: Callable[[], float],
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`clock` is monotonic, in seconds; `now` is the wall clock, which dates certificates."""
        self._client, self._namespace, self._specs = client, namespace, specs
        self._schedule, self._clock, self._now = schedule, clock, now
        self._hosts = frozenset(host for spec in specs if spec.name == "webhook" for host in spec.hosts)
        self._fingerprint: tuple[object, ...] | None = None
        self._unchanged_since = 0.0  # time of the last change
        self.state: ClusterState | None = None

    async def step(self, *, renew_ca: bool = False) -> rotation.Step | rotation.Wait:
        """Read the state and make the step that is due, if any.

        Raises ClusterError; after ApiError with CONFLICTS call again.
        """
        names = [inventory.CA, *(spec.name for spec in self._specs)]
        state = await read_state(self._client, self._namespace, names, self._hosts)
        self.state = state
        if state.fingerprint != self._fingerprint:
            self._fingerprint, self._unchanged_since = state.fingerprint, self._clock()
        unchanged_for = dt.timedelta(seconds=self._clock() - self._unchanged_since)
        situation = rotation.Situation(
            state.observed, self._specs, self._now(), self._schedule, unchanged_for, renew_ca
        )
        result = rotation.plan(situation)
        if isinstance(result, rotation.Step):
            changes = rotation.build_changes(result, situation)
            try:
                await _write(self._client, state, changes)
            except errors.ClusterError:
                self._fingerprint = None  # it is unknown which writes succeeded
                raise
        return result
