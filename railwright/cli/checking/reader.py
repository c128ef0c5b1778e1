"""Reads a cluster: all sources concurrently, the caller's permissions, and the dry runs.

Failed calls become reasons in the snapshot, never exceptions.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib import parse

import msgspec

from railwright.cli.checking import admission, permissions, policy, snapshots
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, watch_wire
from railwright.fabric import names, views

_VERSION = snapshots.SOURCES[0]  # /version, which every API server has
_AT_ONCE = 8  # sources read concurrently
_FORBIDDEN = 403
_DENIED = frozenset({401, _FORBIDDEN})


class _Reading(msgspec.Struct, frozen=True):
    """Result of reading one source."""

    objects: tuple[Any, ...] = ()
    problem: str = ""
    forbidden: str = ""
    unknown: bool = False


class ClusterReader:
    """Reads the sources of a cluster concurrently, and gives each caller those that it names once they are read."""

    def __init__(
        self, client: clients.Client, namespace: str, *, probing: str = "", before: bool = False, problem: str = ""
    ) -> None:
        """Start to read. `probing` is the namespace for dry runs ("" for the first that may use the fabric).

        With `before` (--pre), the caller's permissions to install are read in place of the dry runs. With `problem`,
        the reason why the API server does not answer, nothing is read.
        """
        self._client, self._probing, self._problem = client, probing, problem
        self._empty = snapshots.Snapshot(namespace, dt.datetime.now(dt.UTC), client.host)
        self._semaphore = asyncio.Semaphore(_AT_ONCE)
        self._readings: dict[str, asyncio.Task[_Reading]] = {}
        for source in snapshots.SOURCES:
            self._readings[source.name] = asyncio.create_task(self._read(source))
        derived: Mapping[str, Callable[[], Coroutine[Any, Any, _Reading]]] = {snapshots.CLUSTER: self._read_cluster} | (
            {snapshots.PERMISSIONS: self._read_permissions}
            if before
            else {
                snapshots.DRY_RUNS: self._make_dry_runs,
                snapshots.NAMESPACED_PODS: self._read_namespaced_pods,
                snapshots.SERVER_PERMISSIONS: self._review_servers,
            }
        )
        self._readings |= {name: asyncio.create_task(read()) for name, read in derived.items()}

    async def read(self, names_: Sequence[str]) -> snapshots.Snapshot:
        """Return a snapshot with these sources only. Those that cannot be read are in `unread`; nothing is raised."""
        readings = {name: await self._readings[name] for name in names_ if name in self._readings}
        unread = {name: reading.problem for name, reading in readings.items() if reading.problem}
        return msgspec.structs.replace(
            self._empty,
            objects={name: reading.objects for name, reading in readings.items()},
            unread=unread,
            forbidden=tuple(dict.fromkeys(reading.forbidden for reading in readings.values() if reading.forbidden)),
            unknown=frozenset(name for name, reading in readings.items() if reading.unknown),
        )

    def cancel(self) -> None:
        """End what is still being read."""
        for task in self._readings.values():
            task.cancel()

    async def _read(self, source: snapshots.Source) -> _Reading:
        if self._problem:
            return _Reading(problem=self._problem)
        if source is not _VERSION and (problem := (await self._readings[_VERSION.name]).problem):
            return _Reading(problem=problem)  # without a version no other path would answer either
        async with self._semaphore:
            return await _read(self._client, source, self._empty.namespace)

    async def _read_cluster(self) -> _Reading:
        return _Reading((policy.read_cluster(await self.read(policy.CLUSTER_SOURCES)),))

    async def _read_namespaced_pods(self) -> _Reading:
        """Read the pods of opted-in namespaces. `problem` is that of the first namespace that cannot be read."""
        snapshot = await self.read(("namespaces",))
        opted_in = [
            name
            for name, labels in snapshot.namespace_labels.items()
            if labels.get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE
        ]
        source = snapshots.Source(snapshots.NAMESPACED_PODS, "/api/v1/namespaces/{namespace}/pods", views.Pod)
        readings = [await _read(self._client, source, name) for name in opted_in]
        failed = next((reading for reading in readings if reading.problem), _Reading())
        return msgspec.structs.replace(failed, objects=tuple(pod for reading in readings for pod in reading.objects))

    async def _review_servers(self) -> _Reading:
        """Ask which permissions the servers lack."""
        snapshot = await self.read(("deployments",))
        denied = []
        for server, account in permissions.list_accounts(snapshot).items():
            needed = permissions.list_permissions(server, snapshot.namespace)
            try:
                answers = await asyncio.gather(*(self._review(permission, account) for permission in needed))
            except errors.ApiError as error:
                forbidden = "create subjectaccessreviews.authorization.k8s.io -A" if error.status == _FORBIDDEN else ""
                problem = f"you may not {forbidden} (403 Forbidden)" if forbidden else error.sentence
                return _Reading(problem=problem, forbidden=forbidden)
            except errors.ClusterError as error:
                return _Reading(problem=error.sentence)
            if lacking := tuple(item for item, allowed in zip(needed, answers, strict=True) if allowed is False):
                denied.append((account, lacking))
        return _Reading(tuple(denied))

    async def _read_permissions(self) -> _Reading:
        """Ask which permissions to install the caller has."""

        async def ask(permission: failures.Permission) -> bool | None:
            try:
                return await self._review(permission)
            except errors.ClusterError:
                return None

        answers = await asyncio.gather(*map(ask, permissions.TO_INSTALL))
        return _Reading(tuple(zip(permissions.TO_INSTALL, answers, strict=True)))

    async def _review(self, permission: failures.Permission, account: str = "") -> bool | None:
        """Return whether the caller, or a ServiceAccount of the namespace, has a permission. Raises ClusterError."""
        kind, spec = "SelfSubjectAccessReview", {"resourceAttributes": msgspec.to_builtins(permission)}
        if account:
            namespace = self._empty.namespace
            kind = "SubjectAccessReview"
            spec["user"] = permissions.format_user(namespace, account)
            spec["groups"] = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        async with self._semaphore:
            answer = await self._client.post(path, msgspec.json.encode(body))
        try:
            allowed = snapshots.get_path(msgspec.json.decode(answer), "status", "allowed")
        except msgspec.MsgspecError as error:
            raise failures.build_foreign(self._client.host, path, str(error)) from None
        return allowed if isinstance(allowed, bool) else None

    async def _make_dry_runs(self) -> _Reading:
        snapshot = await self.read(admission.PLAN_SOURCES)
        accelerator = snapshots.list_accelerators(snapshot)[0]
        plans = admission.list_plans(snapshot, self._probing)
        dry_runs = await asyncio.gather(*(_make_dry_run(self._client, plan, accelerator) for plan in plans))
        return _Reading(tuple(dry_runs))


async def _read(client: clients.Client, source: snapshots.Source, namespace: str) -> _Reading:
    path = source.path.format(namespace=parse.quote(namespace, safe=""))
    try:
        if source.single:
            return _Reading((_decode_object(client, path, await client.get(path), source),))
        return _Reading(tuple(await watch_wire.list_objects(client, path, source.view, source.query)))
    except errors.ApiError as error:
        right = source.right.format(namespace=namespace)
        if error.status == 404 and source is not _VERSION:
            return _Reading(unknown=not source.single)
        if error.status == _FORBIDDEN:
            return _Reading(problem=f"you may not {right} (403 Forbidden)", forbidden=right)
        return _Reading(problem=error.sentence)
    except errors.ClusterError as error:
        return _Reading(problem=error.sentence)
    except watch_wire.UNREADABLE as error:
        cause = failures.quote_message(str(error))
        return _Reading(problem=f"an object of {source.name} cannot be decoded{cause and f': {cause}'}")


def _decode_object(client: clients.Client, path: str, body: bytes, source: snapshots.Source) -> Any:
    """Return a single object. Raises ForeignError if the body is not from a Kubernetes API server."""
    try:
        manifest = msgspec.json.decode(body, type=source.view)
    except watch_wire.UNREADABLE as error:
        raise failures.build_foreign(client.host, path, str(error)) from error
    if snapshots.get_path(manifest, "gitVersion" if source is _VERSION else "metadata") is None:
        raise failures.build_foreign(client.host, path)
    return manifest


async def _make_dry_run(client: clients.Client, plan: snapshots.DryRun, accelerator: str) -> snapshots.DryRun:
    if plan.problem:
        return plan
    path = f"/api/v1/namespaces/{plan.namespace}/pods?dryRun=All"
    try:
        body = await client.post(path, msgspec.json.encode(admission.build_pod(plan, accelerator)))
        return msgspec.structs.replace(plan, pod=msgspec.json.decode(body))
    except errors.ApiError as error:
        forbidden = error.status in _DENIED and "is forbidden: User " in error.message
        return msgspec.structs.replace(plan, refusal=error.message, forbidden=forbidden)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        cause = error.sentence if isinstance(error, errors.ClusterError) else "the API server's answer is not a pod"
        return msgspec.structs.replace(plan, refusal=cause)
