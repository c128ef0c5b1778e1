"""Reads a cluster: all sources concurrently, the caller's permissions, and the dry runs.

Failed calls become reasons in the snapshot, never exceptions.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib import parse

import msgspec

from railwright.cli.checking import admission, kubernetes, server_permissions, snapshots
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, watch_wire
from railwright.fabric import names

_VERSION = snapshots.SOURCES[0]  # /version, which every API server has
_AT_ONCE = 8  # sources read concurrently
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT_REVIEW = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
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
        self._readings: dict[str, asyncio.Future[_Reading]] = {}
        for source in snapshots.SOURCES:
            self._readings[source.name] = asyncio.ensure_future(self._read(source))
        derived: Mapping[str, Callable[[], Coroutine[Any, Any, Any]]] = (
            {snapshots.PERMISSIONS: self._read_permissions}
            if before
            else {
                snapshots.DRY_RUNS: self._make_dry_runs,
                snapshots.NAMESPACED_PODS: self._read_namespaced_pods,
                snapshots.SERVER_PERMISSIONS: self._review_servers,
            }
        )
        self._derived = {name: asyncio.ensure_future(read()) for name, read in derived.items()}

    async def read(self, names_: Sequence[str]) -> snapshots.Snapshot:
        """Return a snapshot with these sources only. Those that cannot be read are in `unread`; nothing is raised."""
        readings = {name: await self._readings[name] for name in names_ if name in self._readings}
        derived = {name: await self._derived[name] for name in names_ if name in self._derived}
        pods = derived.get(snapshots.NAMESPACED_PODS, _Reading())
        reviews = derived.get(snapshots.SERVER_PERMISSIONS, _Reading())
        problems = {**readings, snapshots.NAMESPACED_PODS: pods, snapshots.SERVER_PERMISSIONS: reviews}
        if problems.get(snapshots.FABRIC_POLICY, pods).problem:  # it may override the ConfigMap
            problem = f"{problems[snapshots.FABRIC_POLICY].problem}: a {names.POLICY_KIND} would override the ConfigMap"
            problems["policy"] = msgspec.structs.replace(problems[snapshots.FABRIC_POLICY], problem=problem)
        return msgspec.structs.replace(
            self._empty,
            objects={name: reading.objects for name, reading in readings.items()},
            unread={name: reading.problem for name, reading in problems.items() if reading.problem},
            forbidden=tuple(dict.fromkeys(reading.forbidden for reading in problems.values() if reading.forbidden)),
            unknown=frozenset(name for name, reading in readings.items() if reading.unknown),
            may=derived.get(snapshots.PERMISSIONS, {}),
            dry_runs=derived.get(snapshots.DRY_RUNS, ()),
            namespaced_pods=pods.objects,
            denied=dict(reviews.objects),
        )

    def cancel(self) -> None:
        """End what is still being read."""
        for task in (*self._readings.values(), *self._derived.values()):
            task.cancel()

    async def _read(self, source: snapshots.Source) -> _Reading:
        if self._problem:
            return _Reading(problem=self._problem)
        if source is not _VERSION and (problem := (await self._readings[_VERSION.name]).problem):
            return _Reading(problem=problem)  # without a version no other path would answer either
        async with self._semaphore:
            return await _read(self._client, source, self._empty.namespace)

    async def _read_namespaced_pods(self) -> _Reading:
        """Read the pods of opted-in namespaces. `problem` is that of the first namespace that cannot be read."""
        snapshot = await self.read(("namespaces",))
        opted_in = [
            name
            for name, labels in snapshot.namespace_labels.items()
            if labels.get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE
        ]
        readings = [await _read(self._client, snapshots.list_pods_of(name), name) for name in opted_in]
        failed = next((reading for reading in readings if reading.problem), _Reading())
        return msgspec.structs.replace(failed, objects=tuple(pod for reading in readings for pod in reading.objects))

    async def _review_servers(self) -> _Reading:
        """Ask which permissions the servers lack. Each object is an account and its denied permissions."""
        snapshot = await self.read(("deployments",))
        denied = []
        for server, account in server_permissions.list_accounts(snapshot).items():
            permissions = server_permissions.list_permissions(server, snapshot.namespace)
            user = f"system:serviceaccount:{snapshot.namespace}:{account}"
            try:
                answers = await asyncio.gather(*(self._review(permission, user) for permission in permissions))
            except errors.ApiError as error:
                forbidden = "create subjectaccessreviews.authorization.k8s.io -A" if error.status == _FORBIDDEN else ""
                problem = f"you may not {forbidden} (403 Forbidden)" if forbidden else error.sentence
                return _Reading(problem=problem, forbidden=forbidden)
            except errors.ClusterError as error:
                return _Reading(problem=error.sentence)
            if lacking := [str(item) for item, is_denied in zip(permissions, answers, strict=True) if is_denied]:
                denied.append((account, tuple(lacking)))
        return _Reading(tuple(denied))

    async def _review(self, permission: server_permissions.Permission, user: str) -> bool:
        """Return whether a user lacks a permission. Raises ClusterError."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{self._empty.namespace}"],
                "resourceAttributes": msgspec.to_builtins(permission),
            },
        }
        async with self._semaphore:
            answer = await self._client.post(_SUBJECT_REVIEW, msgspec.json.encode(body))
        try:
            return snapshots.get_path(msgspec.json.decode(answer), "status", "allowed") is False
        except msgspec.MsgspecError as error:
            raise failures.build_foreign(self._client.host, _SUBJECT_REVIEW, str(error)) from None

    async def _make_dry_runs(self) -> tuple[snapshots.DryRun, ...]:
        snapshot = await self.read(admission.PLAN_SOURCES)
        accelerator = snapshots.list_accelerators(snapshot)[0]
        plans = admission.list_plans(snapshot, self._probing)
        return tuple(await asyncio.gather(*(_make_dry_run(self._client, plan, accelerator) for plan in plans)))

    async def _read_permissions(self) -> Mapping[str, bool]:
        """Return whether the caller has each permission that an installation needs, by SelfSubjectAccessReview."""
        kinds = kubernetes.INSTALL_PERMISSIONS
        answers = await asyncio.gather(*(_ask_permission(self._client, *kind) for kind in kinds))
        permissions = zip(kinds, answers, strict=True)
        return {kubernetes.format_permission(*kind): allowed for kind, allowed in permissions if allowed is not None}


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


async def _ask_permission(client: clients.Client, group: str, resource: str) -> bool | None:
    """Return whether the caller may create objects of a kind, None if the API server does not say it."""
    attributes = {"verb": "create", "group": group, "resource": resource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = msgspec.json.decode(await client.post(_REVIEW, msgspec.json.encode(body)))
    except (errors.ClusterError, msgspec.MsgspecError):
        return None
    return snapshots.get_path(answer, "status", "allowed") is True


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
