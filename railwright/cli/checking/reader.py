"""Reads a cluster: all sources concurrently, then what follows from them: permissions, pods and dry runs.

Failed calls become reasons in the snapshot, never exceptions.
"""

import asyncio
import datetime as dt
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib import parse

import msgspec

from railwright.cli.checking import admission, nodes, permissions, snapshots
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import names, views

_Result = TypeVar("_Result")
_AT_ONCE = 8  # sources read concurrently
_FORBIDDEN = 403
_DENIED = frozenset({401, _FORBIDDEN})
_PODS = snapshots.Source(snapshots.NAMESPACED_PODS, "/api/v1/namespaces/{namespace}/pods", views.Pod)


class _Reading(msgspec.Struct, frozen=True):
    """Result of reading one source."""

    objects: tuple[Any, ...] = ()
    problem: str = ""
    forbidden: str = ""
    unknown: bool = False


async def read(
    client: clients.Client, namespace: str, *, probing: str = "", before: bool = False, problem: str = ""
) -> snapshots.Snapshot:
    """Return a snapshot of a cluster. Sources that cannot be read are in `unread`; nothing is raised.

    `probing` is the namespace for dry runs ("" for the first that may use the fabric). With `before` (--pre), the
    caller's permissions to install are read in place of the dry runs. With `problem`, the reason why the API server
    does not answer, nothing is read.
    """
    version, *others = snapshots.SOURCES
    first = _Reading(problem=problem) if problem else await _read(client, version, namespace)
    empty = snapshots.Snapshot(namespace, dt.datetime.now(dt.UTC), client.host)
    if first.problem:  # no other path would answer either
        return _build(empty, {source.name: _Reading(problem=first.problem) for source in snapshots.SOURCES})
    read_others = await _gather(_read(client, source, namespace) for source in others)
    readings = {source.name: reading for source, reading in zip(snapshots.SOURCES, (first, *read_others), strict=True)}
    snapshot = _build(empty, readings)
    readings[snapshots.CLUSTER] = _Reading((nodes.read_cluster(snapshot),))
    if before:
        readings[snapshots.PERMISSIONS] = await _read_permissions(client)
    else:
        readings[snapshots.DRY_RUNS] = await _make_dry_runs(client, snapshot, probing)
        readings[snapshots.NAMESPACED_PODS] = await _read_namespaced_pods(client, snapshot)
        readings[snapshots.SERVER_PERMISSIONS] = await _review_servers(client, snapshot)
    return _build(empty, readings)


def _build(empty: snapshots.Snapshot, readings: Mapping[str, _Reading]) -> snapshots.Snapshot:
    return msgspec.structs.replace(
        empty,
        objects={name: reading.objects for name, reading in readings.items()},
        unread={name: reading.problem for name, reading in readings.items() if reading.problem},
        forbidden=tuple(dict.fromkeys(reading.forbidden for reading in readings.values() if reading.forbidden)),
        unknown=frozenset(name for name, reading in readings.items() if reading.unknown),
    )


async def _gather(calls: Iterable[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """Return the results of calls, of which few run at once."""
    semaphore = asyncio.Semaphore(_AT_ONCE)

    async def take_turn(call: Coroutine[Any, Any, _Result]) -> _Result:
        async with semaphore:
            return await call

    return await asyncio.gather(*map(take_turn, calls))


async def _read(client: clients.Client, source: snapshots.Source, namespace: str) -> _Reading:
    path = source.path.format(namespace=parse.quote(namespace, safe=""))
    try:
        if source.single:
            return _Reading((_decode_object(client, path, await client.get(path), source),))
        return _Reading(tuple(await watch_wire.list_objects(client, path, source.view, source.query)))
    except errors.ApiError as error:
        right = source.right.format(namespace=namespace)
        if error.status == 404 and source.name != "version":
            return _Reading(unknown=not source.single)
        if error.status == _FORBIDDEN:
            return _Reading(problem=f"you may not {right} (403 Forbidden)", forbidden=right)
        return _Reading(problem=error.sentence)
    except errors.ClusterError as error:
        return _Reading(problem=error.sentence)
    except watch_wire.UNREADABLE as error:
        cause = errors.quote_message(str(error))
        return _Reading(problem=f"an object of {source.name} cannot be decoded{cause and f': {cause}'}")


def _decode_object(client: clients.Client, path: str, body: bytes, source: snapshots.Source) -> Any:
    """Return a single object. Raises ForeignError if the body is not from a Kubernetes API server."""
    try:
        manifest = msgspec.json.decode(body, type=source.view)
    except watch_wire.UNREADABLE as error:
        raise errors.build_foreign(client.host, path, str(error)) from error
    if snapshots.get_path(manifest, "gitVersion" if source.name == "version" else "metadata") is None:
        raise errors.build_foreign(client.host, path)
    return manifest


async def _read_namespaced_pods(client: clients.Client, snapshot: snapshots.Snapshot) -> _Reading:
    """Read the pods of opted-in namespaces. `problem` is that of the first namespace that cannot be read."""
    opted_in = [
        name
        for name, labels in snapshot.namespace_labels.items()
        if labels.get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE
    ]
    readings = await _gather(_read(client, _PODS, name) for name in opted_in)
    failed = next((reading for reading in readings if reading.problem), _Reading())
    return msgspec.structs.replace(failed, objects=tuple(pod for reading in readings for pod in reading.objects))


# --- permissions ------------------------------------------------------------------------------------------


async def _review_servers(client: clients.Client, snapshot: snapshots.Snapshot) -> _Reading:
    """Ask which permissions the servers lack."""
    denied = []
    for server, account in permissions.list_accounts(snapshot).items():
        user = permissions.format_user(snapshot.namespace, account)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{snapshot.namespace}")
        needed = permissions.list_permissions(server, snapshot)
        try:
            answers = await _gather(_review(client, permission, user, groups) for permission in needed)
        except errors.ApiError as error:
            forbidden = "create subjectaccessreviews.authorization.k8s.io -A" if error.status == _FORBIDDEN else ""
            problem = f"you may not {forbidden} (403 Forbidden)" if forbidden else error.sentence
            return _Reading(problem=problem, forbidden=forbidden)
        except errors.ClusterError as error:
            return _Reading(problem=error.sentence)
        if lacking := tuple(item for item, allowed in zip(needed, answers, strict=True) if allowed is False):
            denied.append((account, lacking))
    return _Reading(tuple(denied))


async def _read_permissions(client: clients.Client) -> _Reading:
    """Ask which permissions to install the caller has."""

    async def ask(permission: errors.Permission) -> tuple[errors.Permission, bool | None]:
        try:
            return permission, await _review(client, permission)
        except errors.ClusterError:
            return permission, None

    return _Reading(tuple(await _gather(map(ask, permissions.TO_INSTALL))))


async def _review(
    client: clients.Client, permission: errors.Permission, user: str = "", groups: Sequence[str] = ()
) -> bool | None:
    """Return whether the caller, or another user, has a permission. Raises ClusterError."""
    kind, spec = "SelfSubjectAccessReview", {"resourceAttributes": msgspec.to_builtins(permission)}
    if user:
        kind, spec = "SubjectAccessReview", {**spec, "user": user, "groups": groups}
    path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
    answer = await client.post(path, {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    try:
        allowed = snapshots.get_path(msgspec.json.decode(answer), "status", "allowed")
    except msgspec.MsgspecError as error:
        raise errors.build_foreign(client.host, path, str(error)) from None
    return allowed if isinstance(allowed, bool) else None


# --- dry runs ---------------------------------------------------------------------------------------------


async def _make_dry_runs(client: clients.Client, snapshot: snapshots.Snapshot, probing: str) -> _Reading:
    plans = admission.list_plans(snapshot, probing)
    dry_runs = await _gather(_make_dry_run(client, plan, snapshot.accelerators[0]) for plan in plans)
    return _Reading(tuple(dry_runs))


async def _make_dry_run(client: clients.Client, plan: snapshots.DryRun, accelerator: str) -> snapshots.DryRun:
    if plan.problem:
        return plan
    path = f"/api/v1/namespaces/{plan.namespace}/pods?dryRun=All"
    try:
        body = await client.post(path, admission.build_pod(plan, accelerator))
        return msgspec.structs.replace(plan, pod=msgspec.json.decode(body))
    except errors.ApiError as error:
        forbidden = error.status in _DENIED and "is forbidden: User " in error.message
        return msgspec.structs.replace(plan, refusal=error.message, forbidden=forbidden)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        cause = error.sentence if isinstance(error, errors.ClusterError) else "the API server's answer is not a pod"
        return msgspec.structs.replace(plan, refusal=cause)
