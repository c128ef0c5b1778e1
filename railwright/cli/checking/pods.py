"""Rows about the pods there are: none opted in and has no record, none was refused lately."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from railwright.cli.checking import model, registrations
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, warn
from railwright.fabric import names
from railwright.fabric.injection import missed

_LATELY = dt.timedelta(hours=1)  # as long as the API server keeps Events (--event-ttl)


def _uninjected(seen: sight.Seen) -> model.Verdict:
    labels = {sight.name_of(each): sight.dig(each, "metadata", "labels") or {} for each in seen.all("namespaces")}
    accelerators = seen.policy.accelerators if seen.policy else ()
    excluded = registrations.find_excluded_namespaces(seen)
    unlabelled = (each for each in seen.namespaced_pods if names.FABRIC not in each.metadata.labels)
    opted_in, missing = 0, []
    for pod in (*seen.all("pods"), *unlabelled):
        namespace = pod.metadata.namespace
        if missed.find_label(pod, labels.get(namespace), accelerators, excluded) is not None:
            missing.append(f"{namespace}/{pod.metadata.name}")
        opted_in += names.INJECTION in pod.metadata.annotations
    opted_in += len(missing)
    if missing:
        return fail(f"{len(missing)} of {opted_in}: {sight.listed(missing)}")
    return ok(sight.counted(opted_in, "pod") if opted_in else "no pod has opted in")


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
