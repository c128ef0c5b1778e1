"""Reads a snapshot of a cluster: all sources concurrently, the caller's permissions, and the dry runs.

Failed calls become reasons in the snapshot, never exceptions.
"""

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any
from urllib import parse

import msgspec

from railwright.cli.checking import admission, kubernetes, snapshots
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, listing, watch_wire
from railwright.fabric import names, views

_AT_ONCE = 8  # sources read concurrently
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_FORBIDDEN = 403
_DENIED = frozenset({401, _FORBIDDEN})


class _Reading(msgspec.Struct, frozen=True):
    """Result of reading one source."""

    objects: tuple[Any, ...] = ()
    problem: str = ""
    forbidden: str = ""
    unknown: bool = False


async def read_cluster(
    client: clients.Client, *, server: str, namespace: str, probing: str = "", before: bool = False
) -> snapshots.ClusterSnapshot:
    """Read a snapshot. Sources that cannot be read are in `unread`; no error of the cluster is raised.

    `probing` is the namespace for dry runs ("" for the first that may use the fabric). `before` (--pre) replaces the
    dry runs by the caller's permissions to install.
    """
    now = dt.datetime.now(dt.UTC)
    version = await _read(client, snapshots.SOURCES[0], namespace)
    if version.problem:  # no other path would answer either
        unread = {source.name: version.problem for source in snapshots.SOURCES}
        return snapshots.ClusterSnapshot(namespace, now, server, unread=unread)
    semaphore = asyncio.Semaphore(_AT_ONCE)

    async def read(source: snapshots.Source) -> _Reading:
        async with semaphore:
            return await _read(client, source, namespace)

    other_readings = await asyncio.gather(*map(read, snapshots.SOURCES[1:]))
    readings = dict(zip([source.name for source in snapshots.SOURCES], [version, *other_readings], strict=True))
    snapshot = snapshots.ClusterSnapshot(
        namespace,
        now,
        server,
        objects={name: reading.objects for name, reading in readings.items()},
        unread={name: reading.problem for name, reading in readings.items() if reading.problem},
        forbidden=tuple(reading.forbidden for reading in readings.values() if reading.forbidden),
        unknown=frozenset(name for name, reading in readings.items() if reading.unknown),
        may=await _read_permissions(client) if before else {},
    )
    if before:
        return snapshot
    pods = await _read_namespaced_pods(client, snapshot)
    return msgspec.structs.replace(
        snapshot, dry_runs=await _make_dry_runs(client, snapshot, probing), namespaced_pods=pods
    )


async def _read(client: clients.Client, source: snapshots.Source, namespace: str) -> _Reading:
    path = source.path.format(namespace=parse.quote(namespace, safe=""))
    try:
        if source.single:
            return _Reading((_decode_object(client, path, await client.get(path), source),))
        return _Reading(tuple(await listing.list_objects(client, path, source.view, source.query)))
    except errors.ApiError as error:
        right = source.right.format(namespace=namespace)
        if error.status == 404 and not _is_version(source):
            return _Reading(unknown=not source.single)
        if error.status == _FORBIDDEN:
            return _Reading(problem=f"you may not {right} (403 Forbidden)", forbidden=right)
        return _Reading(problem=error.sentence)
    except errors.ClusterError as error:
        return _Reading(problem=error.sentence)
    except watch_wire.UNREADABLE as error:
        cause = failures.quotable(str(error))
        return _Reading(problem=f"an object of {source.name} cannot be decoded{cause and f': {cause}'}")


def _is_version(source: snapshots.Source) -> bool:
    """True for /version, which every API server has."""
    return source is snapshots.SOURCES[0]


def _decode_object(client: clients.Client, path: str, body: bytes, source: snapshots.Source) -> Any:
    """Return a single object. Raises ForeignError if the body is not from a Kubernetes API server."""
    try:
        manifest = msgspec.json.decode(body, type=source.view)
    except watch_wire.UNREADABLE as error:
        raise failures.foreign(client.host, path, str(error)) from error
    if snapshots.get_path(manifest, "gitVersion" if _is_version(source) else "metadata") is None:
        raise failures.foreign(client.host, path)
    return manifest


async def _read_namespaced_pods(client: clients.Client, snapshot: snapshots.ClusterSnapshot) -> tuple[views.Pod, ...]:
    """Return the pods of opted-in namespaces that the caller may read."""
    opted_in = [
        str(snapshots.get_name(item))
        for item in snapshot.all("namespaces")
        if (snapshots.get_path(item, "metadata", "labels") or {}).get(names.FABRIC, names.FABRIC_NONE)
        != names.FABRIC_NONE
    ]
    pods: list[views.Pod] = []
    for namespace in opted_in:
        source = snapshots.Source(
            "pods", f"/api/v1/namespaces/{namespace}/pods", f"list pods -n {namespace}", view=views.Pod
        )
        pods += (await _read(client, source, namespace)).objects
    return tuple(pods)


async def _read_permissions(client: clients.Client) -> Mapping[str, bool]:
    """Return whether the caller has each permission that an installation needs, by SelfSubjectAccessReview."""

    async def ask(verb: str, group: str, resource: str) -> bool | None:
        attributes = {"verb": verb, "group": group, "resource": resource}
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

    answers = await asyncio.gather(*(ask(*permission) for permission in kubernetes.INSTALL_PERMISSIONS))
    reviews = zip(kubernetes.INSTALL_PERMISSIONS, answers, strict=True)
    return {
        kubernetes.format_permission(*permission): allowed for permission, allowed in reviews if allowed is not None
    }


async def _make_dry_runs(
    client: clients.Client, snapshot: snapshots.ClusterSnapshot, probing: str
) -> tuple[snapshots.DryRun, ...]:
    accelerator = snapshots.list_accelerators(snapshot)[0]
    plans = admission.list_plans(snapshot, probing)
    return tuple(await asyncio.gather(*(_make_dry_run(client, plan, accelerator) for plan in plans)))


async def _make_dry_run(client: clients.Client, plan: admission.Plan, accelerator: str) -> snapshots.DryRun:
    if plan.problem:
        return snapshots.DryRun(plan.fabric, problem=plan.problem)
    path = f"/api/v1/namespaces/{plan.namespace}/pods?dryRun=All"
    try:
        body = await client.post(path, msgspec.json.encode(admission.build_pod(plan, accelerator)))
        return snapshots.DryRun(plan.fabric, plan.namespace, pod=msgspec.json.decode(body))
    except errors.ApiError as error:
        forbidden = error.status in _DENIED and "is forbidden: User " in error.message
        return snapshots.DryRun(plan.fabric, plan.namespace, refusal=error.message, forbidden=forbidden)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        cause = error.sentence if isinstance(error, errors.ClusterError) else "the API server's answer is not a pod"
        return snapshots.DryRun(plan.fabric, plan.namespace, refusal=cause)
