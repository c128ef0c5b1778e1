"""Watched pods and jobs with too many values are left out."""

import asyncio
import logging

import msgspec
import pytest

from extender import state
from railwright.cluster import reflector, resources
from railwright.fabric.workloads import frameworks

LIMIT = resources.MAX_POD_VALUES
MANY = {
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}] * 400_000}}
    },
    "volumes": [{"name": "," * (LIMIT + 1)}],
}


class Watch:
    """The extender's watch of pods, and the pods it skipped."""

    def __init__(self) -> None:
        self.known, self.skipped = state.State(), []
        (spec,) = [watch for watch in state.list_watches(self.known) if watch.kind is resources.PLACED_PODS]
        watched = msgspec.structs.replace(spec, sink=self)
        self.source = reflector.Reflector(None, watched, lambda *counted: self.skipped.append(counted))
        self.sink, self.pod = spec.sink, None

    def upsert(self, pod) -> None:
        self.pod = pod
        self.sink.upsert(pod)

    def add(self, **spec) -> None:
        tree = {
            "metadata": {"name": "p", "namespace": "prod", "uid": "u"},
            "spec": {"nodeName": "a", **spec},
            "status": {"phase": "Running"},
        }
        asyncio.run(self.source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))


@pytest.fixture
def watch():
    return Watch()


def test_a_pod_below_the_limit_is_read_in_full(watch):
    watch.add(containers=[{"name": "c", "resources": {"requests": {"a.b/c": "1"}}}], tolerations=[{}] * (LIMIT - 50))
    assert len(watch.pod.spec.tolerations) == LIMIT - 50
    assert watch.skipped == []


@pytest.mark.parametrize("field", MANY)
def test_a_pod_with_more_values_is_left_out_and_logged_once(field, watch, caplog):
    with caplog.at_level(logging.WARNING, "railwright.cluster"):
        for _ in range(2):
            watch.add(**{field: MANY[field]})
    assert dict(watch.known.cluster.pods) == {}
    assert watch.skipped == [("pods", "skipped")] * 2
    (record,) = caplog.records
    assert record.message == "object skipped: its last known state stays"
    assert (record.fields["kind"], record.fields["object"]) == ("pods", "prod/p")
    assert f"at most {LIMIT} are read" in record.fields["error"]


def test_a_job_with_too_many_values_is_left_out():
    (spec,) = [watch for watch in state.list_watches(state.State()) if watch.kind.name == "jobs.batch.volcano.sh"]
    skipped = []
    source = reflector.Reflector(None, spec, lambda *counted: skipped.append(counted))
    tree = {"metadata": {"name": "j", "uid": "u"}, "spec": {"tasks": [{}] * (frameworks.MAX_VALUES + 1)}}
    asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))
    assert (source.objects, skipped) == (0, [(spec.kind.name, "skipped")])
