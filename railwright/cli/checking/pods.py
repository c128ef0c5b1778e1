"""Checks of existing pods: opted-in pods without an injection record, and recent rejections."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from railwright.cli.checking import model, snapshots, webhook_configurations
from railwright.cli.checking.model import Row, fail, ok, warn
from railwright.fabric import names
from railwright.fabric.injection import missed

_RECENT = dt.timedelta(hours=1)  # the API server keeps Events this long (--event-ttl)


def _check_uninjected(snapshot: snapshots.ClusterSnapshot) -> model.Assessment:
    labels = {
        snapshots.get_name(item): snapshots.get_path(item, "metadata", "labels") or {}
        for item in snapshot.all("namespaces")
    }
    accelerators = snapshot.policy.accelerators if snapshot.policy else ()
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    unlabelled = (pod for pod in snapshot.namespaced_pods if names.FABRIC not in pod.metadata.labels)
    opted_in, missing = 0, []
    for pod in (*snapshot.all("pods"), *unlabelled):
        namespace = pod.metadata.namespace
        if missed.find_label(pod, labels.get(namespace), accelerators, excluded) is not None:
            missing.append(f"{namespace}/{pod.metadata.name}")
        opted_in += names.INJECTION in pod.metadata.annotations
    opted_in += len(missing)
    if missing:
        return fail(f"{len(missing)} of {opted_in}: {snapshots.join_limited(missing)}")
    return ok(snapshots.format_count(opted_in, "pod") if opted_in else "no pod has opted in")


def _check_rejected(snapshot: snapshots.ClusterSnapshot) -> model.Assessment:
    recent = [event for event in snapshot.all("refusals") if snapshot.now - _get_time(event) < _RECENT]
    if not recent:
        return ok("none in the last hour")
    newest = max(recent, key=_get_time)
    involved = snapshots.get_path(newest, "involvedObject") or {}
    owner = f"{involved.get('kind')} {involved.get('namespace')}/{involved.get('name')}"
    return warn(f"{len(recent)} in the last hour; most recently {owner}: {snapshots.get_path(newest, 'message') or ''}")


def _get_time(event: Any) -> dt.datetime:
    for timestamp in (
        snapshots.get_path(event, "series", "lastObservedTime"),
        snapshots.get_path(event, "lastTimestamp"),
        snapshots.get_path(event, "eventTime"),
        snapshots.get_path(event, "metadata", "creationTimestamp"),
    ):
        if timestamp:
            return dt.datetime.fromisoformat(timestamp)
    return dt.datetime.fromtimestamp(0, dt.UTC)


def list_rows() -> Iterator[Row]:
    """Yield the checks of the group `pods`."""
    yield Row(
        anchor="uninjected",
        name="every opted-in pod has its network",
        assess=_check_uninjected,
        hint="these pods were created while the webhook was not called, and use TCP; delete them so that their "
        "controller recreates them: kubectl -n NAMESPACE delete pod NAME",
        reads=("pods",),
        depends_on=("api-reachable",),
    )
    yield Row(
        anchor="refused",
        name="no pod was rejected recently",
        assess=_check_rejected,
        hint="the Event says how to fix it; to list all: kubectl get events -A --field-selector reason=FabricRefused",
        reads=("refusals",),
        depends_on=("api-reachable",),
    )
