"""Reads a cluster: all sources concurrently, then dry runs and the servers' metrics.

Failed calls become reasons in the snapshot, never exceptions.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import re
from typing import Any

import msgspec

from railwright.cli import cluster_access
from railwright.cli.checking import pods
from railwright.cli.checking.snapshots import (
    EXTENDER,
    OWN,
    SOURCES,
    STALE_SECONDS,
    WEBHOOK,
    DryRun,
    SkipError,
    Snapshot,
    get_list,
    get_path,
)
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire

_FORBIDDEN = 403
_DENIED = frozenset({401, _FORBIDDEN})
_METRICS_SECONDS = 3.0  # a NetworkPolicy may drop the packets of the API server's proxy
_ANSWERED = re.compile(
    rb'^railwright_requests_total\{outcome="ok",path="/(?:scheduler|volcano)/.*\} (\S+)$', re.MULTILINE
)
_AGE = re.compile(rb'^railwright_cache_age_seconds\{kind="([^"]+)"\} (\S+)$', re.MULTILINE)


async def read(client: clients.Client, *, probing: str = "", problem: str = "") -> Snapshot:
    """Return a snapshot of a cluster. Sources that cannot be read are in `unread`; nothing is raised.

    `probing` is the namespace for dry runs ("" for the first that may use the fabric). With `problem`, the error of the
    connection, nothing is read.
    """
    snapshot = Snapshot(dt.datetime.now(dt.UTC), client.host)
    if problem:
        snapshot.unread["version"] = problem
    else:
        await _read(client, snapshot, "version")
    if "version" in snapshot.unread:  # no other path would answer either
        return snapshot
    others = [name for name in SOURCES if name != "version"]
    await cluster_access.gather(functools.partial(_read, client, snapshot), others)
    await cluster_access.gather(functools.partial(_make_dry_run, client, snapshot, probing), snapshot.fabrics)
    servers = [*snapshot.list_server_pods(EXTENDER), *snapshot.list_server_pods(WEBHOOK)]
    await cluster_access.gather(functools.partial(_read_metrics, client, snapshot), servers)
    return snapshot


async def _read(client: clients.Client, snapshot: Snapshot, name: str) -> None:
    source = SOURCES[name]
    try:
        if source.is_single:
            body = await client.get(source.path)
            snapshot.objects[name] = [watch_wire.decode_object(client, source.path, body, source.view)]
        else:
            snapshot.objects[name] = await watch_wire.list_objects(client, source.path, source.view, source.query)
    except errors.ClusterError as error:
        if error.status == 404 and name != "version":
            snapshot.unknown |= set() if source.is_single else {name}
            return
        is_forbidden = error.status == _FORBIDDEN
        snapshot.unread[name] = f"you may not {source.right} (403 Forbidden)" if is_forbidden else error.sentence


async def _read_metrics(client: clients.Client, snapshot: Snapshot, pod: Any) -> None:
    """Read the number of scheduler requests that a pod has answered, and its stale caches, if metrics can be read."""
    name = str(get_path(pod, "metadata", "name"))
    containers = get_list(pod, "spec", "containers")
    ports = [port for container in containers for port in get_list(container, "ports") if port.get("name") == "ops"]
    for port in ports:
        target = f"http:{name}:{port.get('containerPort')}"
        path = f"/api/v1/{OWN}/pods/{target}/proxy/metrics"
        with contextlib.suppress(errors.ClusterError, TimeoutError):
            async with asyncio.timeout(_METRICS_SECONDS):
                metrics = await client.get(path)
            if b"railwright_build_info" in metrics:
                snapshot.scheduler_requests[name] = round(sum(map(float, _ANSWERED.findall(metrics))))
                ages = _AGE.findall(metrics)
                snapshot.stale_kinds[name] = [kind.decode() for kind, age in ages if float(age) > STALE_SECONDS]


async def _make_dry_run(client: clients.Client, snapshot: Snapshot, probing: str, fabric: str) -> None:
    try:
        namespace = pods.choose_namespace(snapshot, fabric, probing)
    except SkipError as error:
        snapshot.dry_runs[fabric] = DryRun(refusal=str(error))
        return
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    try:
        body = await client.post(path, pods.build_pod(snapshot, fabric, namespace))
        snapshot.dry_runs[fabric] = DryRun(namespace, pod=msgspec.json.decode(body))
    except errors.ApiError as error:
        is_forbidden = error.status in _DENIED and "is forbidden: User " in error.message
        snapshot.dry_runs[fabric] = DryRun(namespace, refusal=error.message, forbidden=is_forbidden)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        cause = error.sentence if isinstance(error, errors.ClusterError) else "the API server's answer is not a pod"
        snapshot.dry_runs[fabric] = DryRun(namespace, refusal=cause)
