"""Rows about the pods there are: none opted in and has no record, none was refused lately."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from cli.checking import model
from cli.checking import seen as sight
from cli.checking.model import Row, fail, ok, warn
from fabric import names, views
from fabric.injection import accelerators

_LATELY = dt.timedelta(hours=1)  # as long as the API server keeps Events (--event-ttl)
_MIRROR = "kubernetes.io/config.mirror"  # annotation of a static pod's image in the API: never admitted
_OVER = ("Succeeded", "Failed")


def _uninjected(seen: sight.Seen) -> model.Verdict:
    opted = [*_labelled(seen), *_of_namespaces(seen)]
    bare = [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in opted
        if names.INJECTION not in pod.metadata.annotations
    ]
    if bare:
        return fail(f"{len(bare)} of {len(opted)}: {sight.listed(bare)}")
    return ok(sight.counted(len(opted), "pod") if opted else "no pod has opted in")


def _labelled(seen: sight.Seen) -> Iterator[views.Pod]:
    for pod in seen.all("pods"):
        if pod.metadata.labels.get(names.FABRIC) != names.FABRIC_NONE and _is_judged(pod, seen):
            yield pod


def _of_namespaces(seen: sight.Seen) -> Iterator[views.Pod]:
    if seen.policy is None:
        return
    for pod in seen.namespaced_pods:
        if names.FABRIC not in pod.metadata.labels and _is_judged(pod, seen) and _wants(pod, seen.policy.accelerators):
            yield pod


def _wants(pod: views.Pod, resources: tuple[str, ...]) -> bool:
    return any(accelerators.names(each, name) for each in pod.spec.containers for name in resources)


def _is_judged(pod: views.Pod, seen: sight.Seen) -> bool:
    return (
        pod.metadata.namespace not in ("kube-system", seen.namespace)
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in _OVER
        and _MIRROR not in pod.metadata.annotations
    )


def _refused(seen: sight.Seen) -> model.Verdict:
    lately = [each for each in seen.all("refusals") if seen.now - _last(each) < _LATELY]
    if not lately:
        return ok("none in an hour")
    newest = max(lately, key=_last)
    about = sight.dig(newest, "involvedObject") or {}
    who = f"{about.get('kind')} {about.get('namespace')}/{about.get('name')}"
    return warn(f"{len(lately)} in an hour; the last, of {who}: {sight.dig(newest, 'message') or ''}")


def _last(event: Any) -> dt.datetime:
    for written in (
        sight.dig(event, "series", "lastObservedTime"),
        sight.dig(event, "lastTimestamp"),
        sight.dig(event, "eventTime"),
        sight.dig(event, "metadata", "creationTimestamp"),
    ):
        if written:
            return dt.datetime.fromisoformat(written)
    return dt.datetime.fromtimestamp(0, dt.UTC)


def rows() -> Iterator[Row]:
    """The group `pods`."""
    yield Row("uninjected", "every pod that opted in has its network", _uninjected,
              "they were created while the webhook was not called, and crawl over TCP: delete them, so that their "
              "controller makes them anew: kubectl -n NAMESPACE delete pod NAME", ("pods",),
              ("api-reachable",))  # fmt: skip
    yield Row("refused", "no pod was refused lately", _refused,
              "the sentence says what to mend; all: kubectl get events -A --field-selector reason=FabricRefused",
              ("refusals",), ("api-reachable",))  # fmt: skip
