"""Copies ConfigMaps that a policy names in another namespace to the namespaces of pods, and removes unused copies.

Admission writes nothing: pods name the copy, and kubelet starts them once it exists. Each replica makes passes: at
once when a pod names a copy that is missing, otherwise every few seconds. A pass reads each source, and the ConfigMaps
of all namespaces that have the name of its copies, so that the rights can be limited to these names. `plan` compares
them with what pods name. Another ConfigMap of that name stays as it is.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from railwright.cluster import errors, watch_wire
from railwright.fabric import names, views
from railwright.fabric.injection import facts
from railwright.fabric.policy import model as policies
from webhook import claim_cache, controllers, object_events

MAX_BYTES = 256 * 1024  # of a source; topology files have a few KiB
MAX_COPIES = 1000  # in all namespaces
_PASS_SECONDS = 15.0  # between passes, if pods miss no copy
_SHORTEST_PAUSE_SECONDS = 0.5
_PAGE = "5"  # ConfigMaps: anybody may write one of a mebibyte, which JSON may make six, and two pages are in memory
_FORBIDDEN = 403
_LOG = logging.getLogger("railwright.copies")
_TOO_MANY = f"there are {MAX_COPIES} copies already; use the fabrics that need them in fewer namespaces"
_decode = msgspec.json.Decoder(views.ConfigMap).decode
_encode = msgspec.json.Encoder(order="deterministic").encode

Key = claim_cache.Key
Verb = Literal["created", "updated", "removed"]


class SourceError(errors.ClusterError):
    """The API server's answer is not a ConfigMap."""


class Existing(msgspec.Struct, frozen=True):
    """A ConfigMap with the name of a copy. Its content is not kept, because anybody may write one of a mebibyte."""

    uid: str
    resource_version: str
    is_own: bool
    digest: bytes


class Observed(msgspec.Struct, frozen=True):
    """Holds what a pass has read for one name of copies. `content` is None if there is no source to copy."""

    source: str  # NAMESPACE/NAME
    content: views.ConfigMap | None
    existing: Mapping[str, Existing]  # by namespace


class Write(msgspec.Struct, frozen=True):
    """A change of the copy of one namespace."""

    verb: Verb
    namespace: str


def plan(observed: Observed, used: Collection[str], expired: Collection[str], room: int) -> Iterator[Write]:
    """Yield the changes of the copies of one source, with at most `room` new ones.

    Pods of the namespaces `used` name it; those of `expired` have not named it for a time.
    """
    digest = None if observed.content is None else _compute_digest(observed.source, observed.content)
    if digest is not None:
        missing = [namespace for namespace in used if namespace not in observed.existing]
        yield from (Write("created", namespace) for namespace in missing[: max(room, 0)])
    for namespace, existing in observed.existing.items():
        if existing.is_own and namespace in expired:
            yield Write("removed", namespace)
        elif existing.is_own and digest is not None and existing.digest != digest:
            yield Write("updated", namespace)


def list_sources(document: policies.PolicyDocument) -> Mapping[str, str]:
    """Return NAMESPACE/NAME of each ConfigMap that the fabrics have copied, by the name of the copies."""
    mounts = [mount for fabric in document.fabrics.values() for mount in fabric.mounts.config_maps]
    return {mount.mounted_name: mount.source for mount in mounts if mount.source}


def _list_selectors(document: policies.PolicyDocument) -> Mapping[str, Sequence[policies.LabelSelector]]:
    """Return the selectors of the namespaces that may use the fabrics with a copy, by the name of the copies."""
    selectors: dict[str, list[policies.LabelSelector]] = {}
    for fabric in document.fabrics.values():
        for name in {mount.mounted_name for mount in fabric.mounts.config_maps if mount.source}:
            selectors.setdefault(name, []).append(fabric.namespaces)
    return selectors


class ConfigMapCopier:
    """Keeps the copies equal to their sources where pods name them."""

    def __init__(self, parts: controllers.Parts) -> None:
        self._parts, self._state = parts, parts.state
        self._changed = asyncio.Event()
        self._sources: dict[str, str] = {}  # also those that a former policy named, until their copies are removed
        self._failed: set[Key] = set()  # copies that could not be written in the last pass
        self._unused_since: dict[str, dict[Key, float]] = {}  # by the name of the copies
        parts.state.copying_pods.on_change = self.wake

    def wake(self) -> None:
        """Look for missing copies soon."""
        self._changed.set()

    async def run(self) -> None:
        """Make passes until cancelled."""
        while True:
            if not self._parts.get_problem():
                await self._make_pass(time.monotonic())
            await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
            pause = min(_PASS_SECONDS, max(_SHORTEST_PAUSE_SECONDS, self._parts.unused_seconds / 4))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wait_for_missing()

    async def _wait_for_missing(self) -> None:
        """Wait until a pod names a copy that is missing and has not failed."""
        while not self._is_missing():
            self._changed.clear()
            await self._changed.wait()

    def _is_missing(self) -> bool:
        known = self._state.copies.own | self._state.copies.foreign | self._failed
        return any(
            (namespace, name) not in known for name in self._list_current() for namespace in self._list_used(name)
        )

    def _list_current(self) -> Mapping[str, str]:
        """Return the sources that the policy in force names, by the name of the copies."""
        policy = self._parts.get_policy()
        return policy.compile_once(list_sources) if policy is not None else {}

    def _list_used(self, name: str) -> list[str]:
        """Return the namespaces whose pods name a copy, and that may use a fabric with it. Anybody may name one."""
        named, policy = self._state.copying_pods.templates, self._parts.get_policy()
        selectors = policy.compile_once(_list_selectors).get(name, ()) if policy is not None else ()
        return [
            namespace
            for namespace, labels in (self._state.namespaces.by_key or {}).items()
            if (namespace, name) in named and any(selector.matches(labels) for selector in selectors)
        ]

    async def _make_pass(self, now: float) -> None:
        """Read and write the copies of all sources once."""
        self._sources |= self._list_current()
        own: set[Key] = set()
        foreign: set[Key] = set()
        problems: dict[str, str] = {}
        before = self._state.copies
        for name, source in tuple(self._sources.items()):
            try:
                existing = await self._list(name)
            except errors.ClusterError as error:
                problems[name] = _format_cause(error, source)
                own.update(key for key in before.own if key[1] == name)
                foreign.update(key for key in before.foreign if key[1] == name)
                continue
            content, problems[name] = await self._read_source(name, source)
            observed = Observed(source, content, existing)
            foreign.update((namespace, name) for namespace in existing if not existing[namespace].is_own)
            own |= await self._write_copies(name, observed, MAX_COPIES - len(own), now)
            if name not in self._list_current() and not any(key[1] == name for key in own):
                del self._sources[name], self._unused_since[name]
        used = {(namespace, name) for name in self._sources for namespace in self._list_used(name)}
        self._failed = used - own - foreign
        if len(own) >= MAX_COPIES:
            problems |= {name: _TOO_MANY for _, name in self._failed if not problems[name]}
        self._report({name: cause for name, cause in problems.items() if cause}, own, foreign)

    async def _write_copies(self, name: str, observed: Observed, room: int, now: float) -> set[Key]:
        """Write the changes of the copies of one source. Return the copies that exist then."""
        copies = {(namespace, name) for namespace, existing in observed.existing.items() if existing.is_own}
        expired = self._list_expired(name, copies, now)
        for write in plan(observed, self._list_used(name), expired, room - len(copies)):
            key = (write.namespace, name)
            if not await self._write(write, observed, key):
                continue
            if write.verb == "removed":
                copies.remove(key)
            else:
                copies.add(key)
        return copies

    def _list_expired(self, name: str, copies: Collection[Key], now: float) -> set[str]:
        """Return the namespaces whose pods have not named these copies for a time."""
        named, before = self._state.copying_pods.templates, self._unused_since.get(name, {})
        unused = {key: before.get(key, now) for key in copies if key not in named}
        self._unused_since[name] = unused
        return {key[0] for key, since in unused.items() if now - since >= self._parts.unused_seconds}

    async def _list(self, name: str) -> dict[str, Existing]:
        """Return the ConfigMaps with the name of copies, by namespace."""
        query = {"fieldSelector": f"metadata.name={name}", "limit": _PAGE}
        async with contextlib.aclosing(watch_wire.read_pages(self._parts.client, "/api/v1/configmaps", query)) as pages:
            read = (_decode_or_raise(item) async for page in pages for item in page.items or ())
            return {config_map.metadata.namespace: _describe(config_map) async for config_map in read}

    async def _read_source(self, name: str, source: str) -> tuple[views.ConfigMap | None, str]:
        """Return the source of copies, or None and why there is none to copy."""
        if name not in self._list_current():
            return None, ""
        try:
            config_map = _decode_or_raise(await self._parts.client.get(_build_path(*source.split("/"))))
        except errors.ClusterError as error:
            return None, _format_cause(error, source)
        size = len(_encode_content(config_map))
        if size > MAX_BYTES:
            return None, f"it has {size} bytes; at most {MAX_BYTES} are copied"
        return config_map, ""

    async def _write(self, write: Write, observed: Observed, key: Key) -> bool:
        """Write one change. A failure is logged and reported on a pod that waits; return False then."""
        try:
            await self._send(write, observed, key)
        except errors.ClusterError as error:
            if controllers.was_late(error):
                return False  # the next pass sees what the other replica wrote
            self._parts.counters.config_map_copies.labels("failed").inc()
            fields = {"namespace": key[0], "name": key[1], "source": observed.source, "error": error.sentence}
            _LOG.warning("copy of a ConfigMap not written", extra={"fields": fields})
            self._post_failure(key, error.sentence)
            return False
        self._parts.counters.config_map_copies.labels(write.verb).inc()
        fields = {"namespace": key[0], "name": key[1], "source": observed.source}
        _LOG.info("copy of a ConfigMap %s", write.verb, extra={"fields": fields})
        return True

    async def _send(self, write: Write, observed: Observed, key: Key) -> None:
        namespace, name = key
        if write.verb == "removed":
            await self._parts.delete(_build_path(namespace, name), observed.existing[namespace].uid)
            return
        assert observed.content is not None  # noqa: S101 - `plan` writes nothing without it
        tree = _build_copy(key, observed.source, observed.content)
        if write.verb == "created":
            await self._parts.client.post(_build_path(namespace), msgspec.json.encode(tree))
            return
        tree["metadata"]["resourceVersion"] = observed.existing[namespace].resource_version
        await self._parts.client.put(_build_path(namespace, name), msgspec.json.encode(tree))

    def _report(self, problems: Mapping[str, str], own: Collection[Key], foreign: Collection[Key]) -> None:
        """Store the result of a pass. Report why sources are not copied: in the log if it is new, and on pods."""
        for name, cause in problems.items():
            if self._state.copies.problems.get(name) != cause:
                fields = {"source": self._sources.get(name, ""), "name": name, "error": cause}
                _LOG.warning("ConfigMap not copied", extra={"fields": fields})
        for key in self._failed:
            if key[1] in problems:
                self._post_failure(key, problems[key[1]])
        self._state.set_copies(facts.Copies(own=frozenset(own), foreign=frozenset(foreign), problems=problems))

    def _post_failure(self, key: Key, cause: str) -> None:
        pod = self._state.copying_pods.find_waiting(key)
        if pod is not None:
            written, reason = f"ConfigMap {key[1]}", object_events.NOT_COPIED
            object_events.post_failure(self._parts.poster, pod, written, cause, reason=reason)


def _format_cause(error: errors.ClusterError, source: str) -> str:
    if error.status == _FORBIDDEN:
        return f"the webhook lacks the rights; add {source} to webhook.copiedConfigMaps of the chart"
    if error.status == controllers.NOT_FOUND:
        return "it does not exist; create it, or correct mounts.configMaps of the policy"
    return error.sentence


def _decode_or_raise(body: bytes | msgspec.Raw) -> views.ConfigMap:
    try:
        return _decode(body)
    except watch_wire.UNREADABLE as error:
        raise SourceError(f"a ConfigMap cannot be decoded: {type(error).__name__}") from None


def _encode_content(config_map: views.ConfigMap) -> bytes:
    return _encode((config_map.data or {}, config_map.binary_data or {}))


def _compute_digest(source: str, config_map: views.ConfigMap) -> bytes:
    return hashlib.sha256(source.encode() + b"\0" + _encode_content(config_map)).digest()


def _describe(config_map: views.ConfigMap) -> Existing:
    metadata = config_map.metadata
    source = metadata.annotations.get(names.COPIED_FROM, "")
    is_own = bool(source) and metadata.labels.get(names.MANAGED_BY) == names.OWNER
    return Existing(metadata.uid, metadata.resource_version, is_own, _compute_digest(source, config_map))


def _build_copy(key: Key, source: str, content: views.ConfigMap) -> dict[str, Any]:
    metadata = {
        "name": key[1],
        "namespace": key[0],
        "labels": {names.MANAGED_BY: names.OWNER},
        "annotations": {names.COPIED_FROM: source},
    }
    values = {"data": content.data or {}, "binaryData": content.binary_data or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **values}


def _build_path(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return f"{path}/{name}" if name else path
