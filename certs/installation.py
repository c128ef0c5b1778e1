"""Certificates in a cluster: Secrets that hold them, webhook configurations that trust them.

Owns which fields of those objects are ours, and changes only them, and only while they are what was looked at: each
write carries the resourceVersion of the look, so that of two writers one gets a 409 and looks again. Refuses to know
what a certificate says and when it is due.
"""

import base64
import binascii
import dataclasses
import datetime as dt
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from certs import inventory, issue, rotation, steps, trust
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, watch_wire

CONFIGURATION = "railwright"  # the name of our mutating and of our validating configuration
KINDS: Mapping[str, str] = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
PUBLISHED, MOVED = "railwright.io/published", "railwright.io/moved"  # annotations of the authority's Secret
_LABELS = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/managed-by": "railwright-certs"}
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_MERGE, _JSON = "application/merge-patch+json", "application/json-patch+json"
_APPLY, _MANAGER = "application/apply-patch+yaml", "railwright-certs"
_NOT_FOUND = 404

Document = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Trust:
    """One webhook configuration; `found` is False where the cluster has none."""

    kind: str
    found: bool
    filled: tuple[str, ...] = ()  # webhooks whose caBundle was written
    foreign: tuple[str, ...] = ()  # webhooks in our configuration that call someone else: not touched


class Look:
    """What the cluster held at one moment, as it stands there."""

    def __init__(
        self,
        namespace: str,
        secrets: Mapping[str, Document | None],
        configurations: Mapping[str, Document | None],
        hosts: Collection[str],
    ) -> None:
        """`secrets` by the inventory's names, `configurations` by kind; None where there is none."""
        self.namespace, self.secrets, self.configurations = namespace, secrets, configurations
        self._hosts = frozenset(hosts)

    @property
    def pairs(self) -> dict[str, issue.Pair]:
        """The pairs by name; those of Secrets that are missing or empty are left out."""
        found = {name: _pair(_data(secret)) for name, secret in self.secrets.items()}
        return {name: pair for name, pair in found.items() if pair is not None}

    @property
    def seen(self) -> rotation.Seen:
        """The same in the words of a rotation."""
        leaves = {}
        for name, secret in self.secrets.items():
            if name != inventory.AUTHORITY:
                data = _data(secret)
                leaves[name] = rotation.Stored(_pair(data), data.get("ca.crt", b""))
        bundles = {
            f"{kind}/{hook['name']}": _decoded(hook["clientConfig"].get("caBundle"))
            for kind in self.configurations
            for _, hook in self.ours(kind)
        }
        return rotation.Seen(_keyring(self.secrets.get(inventory.AUTHORITY)), leaves, bundles)

    @property
    def mark(self) -> tuple[object, ...]:
        """Differs from another look's where a leaf or a bundle was written in between, even to what it was before."""
        versions = [_version(each) for name, each in self.secrets.items() if name != inventory.AUTHORITY]
        return (*versions, *(each and each["metadata"].get("generation") for each in self.configurations.values()))

    def ours(self, kind: str) -> list[tuple[int, Document]]:
        """The webhooks of a configuration that call us, with their places in the list."""
        hooks = (self.configurations.get(kind) or {}).get("webhooks") or []
        return [(place, hook) for place, hook in enumerate(hooks) if self._calls_us(hook["clientConfig"])]

    def trusts(self, pem: bytes) -> tuple[Trust, ...]:
        """What writing `pem` to the configurations changes."""
        found = []
        for kind, document in self.configurations.items():
            ours = self.ours(kind)
            names = [hook["name"] for hook in (document or {}).get("webhooks") or []]
            foreign = [name for name in names if name not in {hook["name"] for _, hook in ours}]
            filled = [hook["name"] for _, hook in ours if _decoded(hook["clientConfig"].get("caBundle")) != pem]
            found.append(Trust(kind, document is not None, tuple(filled), tuple(foreign)))
        return tuple(found)

    def _calls_us(self, client_config: Document) -> bool:
        """A webhook calls us when its service is in our namespace, or the host of its URL is one of ours."""
        if (service := client_config.get("service")) is not None:
            return bool(service["namespace"] == self.namespace)
        return urllib.parse.urlsplit(client_config.get("url") or "").hostname in self._hosts


async def look(client: clients.Client, namespace: str, names: Sequence[str], hosts: Collection[str]) -> Look:
    """Read the Secrets of `names` (the inventory's) and both configurations. Raises ClusterError."""
    secrets = {name: await _or_none(client, _secret_path(namespace, name)) for name in names}
    configurations = {kind: await _or_none(client, _configuration_path(kind)) for kind in KINDS}
    return Look(namespace, secrets, configurations, hosts)


async def write(client: clients.Client, looked: Look, writes: steps.Writes) -> None:
    """Write what a step says, object by object. Raises ApiError 409 or 422 where one has changed since the look."""
    if writes.keyring is not None:
        await _write_secret(client, looked, inventory.AUTHORITY, _keyring_data(writes.keyring), writes.keyring)
    if writes.bundle is not None:
        await fill(client, looked, writes.bundle)
    for name, stored in writes.leaves.items():
        if stored.pair is not None:
            await _write_secret(client, looked, name, {**_pair_data(stored.pair), "ca.crt": stored.trusted})


async def write_pairs(client: clients.Client, looked: Look, pairs: Mapping[str, issue.Pair]) -> bytes:
    """Write an authority (`ca`) and leaves of it; the bundle goes beside each and is returned.

    Authorities that are trusted already stay so. Should another run have written meanwhile, the API server's 409 is
    raised and nothing more is written; the authority goes first.
    """
    authority = trust.split(pairs[inventory.AUTHORITY].certificate_pem)
    trusted = looked.seen.keyring.trusted
    bundle = trust.joined(trusted if set(authority) <= set(trusted) else [*authority, *trusted])
    for name, pair in pairs.items():
        if name in looked.secrets:
            await _write_secret(client, looked, name, {**_pair_data(pair), "ca.crt": bundle})
    return bundle


async def fill(client: clients.Client, looked: Look, pem: bytes) -> tuple[Trust, ...]:
    """Write `caBundle` of the webhooks in our two configurations that call us; touch nothing else."""
    encoded = base64.b64encode(pem).decode()
    for kind, document in looked.configurations.items():
        behind = [place for place, hook in looked.ours(kind) if _decoded(hook["clientConfig"].get("caBundle")) != pem]
        if document is not None and behind:
            # by index: the version test refuses it if the list has moved since it was read
            unmoved = {"op": "test", "path": "/metadata/resourceVersion", "value": _version(document)}
            paths = [f"/webhooks/{place}/clientConfig/caBundle" for place in behind]
            changes = [unmoved, *({"op": "add", "path": path, "value": encoded} for path in paths)]
            await client.patch(_configuration_path(kind), msgspec.json.encode(changes), _JSON)
    return looked.trusts(pem)


async def _write_secret(
    client: clients.Client,
    looked: Look,
    name: str,
    data: Mapping[str, bytes | None],
    keyring: rotation.Keyring | None = None,
) -> None:
    """Create or change one Secret; None takes a key away."""
    old = looked.secrets[name]
    if all(_data(old).get(key) == value for key, value in data.items()) and keyring is None:
        return
    encoded = {key: None if value is None else base64.b64encode(value).decode() for key, value in data.items()}
    metadata: Document = {"annotations": _stamps(keyring)} if keyring is not None else {}
    if old is not None:
        metadata["resourceVersion"] = _version(old)
        body = msgspec.json.encode({"metadata": metadata, "data": encoded})
        await client.patch(_secret_path(looked.namespace, name), body, _MERGE)
        return
    given = {key: value for key, value in encoded.items() if value is not None}
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if value is not None}
    new = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": inventory.SECRETS[name], "labels": _LABELS, "annotations": annotations},
        "data": {"tls.crt": "", "tls.key": "", **given},  # that type wants both
    }
    # by server-side apply, for which the right to create can be limited by name; a POST names nothing
    path = f"{_secret_path(looked.namespace, name)}?fieldManager={_MANAGER}"
    await client.patch(path, msgspec.json.encode(new), _APPLY)


def _secret_path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/secrets" + (f"/{inventory.SECRETS[name]}" if name else "")


def _configuration_path(kind: str) -> str:
    return f"{_GROUP}/{KINDS[kind]}/{CONFIGURATION}"


def _version(document: Document | None) -> str:
    return str(document["metadata"]["resourceVersion"]) if document else ""


def _data(secret: Document | None) -> dict[str, bytes]:
    return {key: _decoded(value) for key, value in ((secret or {}).get("data") or {}).items()}


def _decoded(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except binascii.Error:  # the API server would not have taken it
        return b""


def _pair(data: Mapping[str, bytes], certificate: str = "tls.crt", key: str = "tls.key") -> issue.Pair | None:
    halves = data.get(certificate), data.get(key)
    return issue.Pair(halves[0], halves[1]) if halves[0] and halves[1] else None


def _pair_data(pair: issue.Pair | None, certificate: str = "tls.crt", key: str = "tls.key") -> dict[str, bytes | None]:
    return {certificate: pair.certificate_pem if pair else None, key: pair.key_pem if pair else None}


def _keyring(secret: Document | None) -> rotation.Keyring:
    data, annotations = _data(secret), ((secret or {}).get("metadata", {}).get("annotations") or {})
    return rotation.Keyring(
        signer=_pair(data),
        following=_pair(data, "next.crt", "next.key"),
        trusted=trust.split(data.get("ca.crt", b"")),
        published=_time(annotations.get(PUBLISHED)),
        moved=_time(annotations.get(MOVED)),
    )


def _keyring_data(keyring: rotation.Keyring) -> dict[str, bytes | None]:
    signer = keyring.signer or issue.Pair(b"", b"")  # empty, not absent: kubernetes.io/tls wants both
    following = _pair_data(keyring.following, "next.crt", "next.key")
    return {**_pair_data(signer), **following, "ca.crt": trust.joined(keyring.trusted)}


def _stamps(keyring: rotation.Keyring) -> dict[str, str | None]:
    return {
        PUBLISHED: keyring.published.isoformat() if keyring.published else None,
        MOVED: keyring.moved.isoformat() if keyring.moved else None,
    }


def _time(text: str | None) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


async def _or_none(client: clients.Client, path: str) -> Document | None:
    """Return an object, None where there is none. Raises ClusterError, also for an answer that is no object."""
    try:
        found = msgspec.json.decode(await client.get(path))
    except errors.ApiError as error:
        if error.status == _NOT_FOUND and not error.foreign:
            return None
        raise
    except watch_wire.UNREADABLE as error:
        raise failures.foreign(client.host, path, str(error)) from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise failures.foreign(client.host, path)
    return found
