"""A watched pod with more values than placement reads keeps its node and its gang; a job with too many is left out."""

import asyncio
import logging

import msgspec
import pytest

from extender import state
from railwright.cluster import reflector, resources
from railwright.fabric import resources as amounts
from railwright.fabric.workloads import frameworks

LIMIT = resources.MAX_POD_VALUES
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o", "controller": True}
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
        metadata = {"name": "p", "namespace": "prod", "uid": "u", "ownerReferences": [OWNER]}
        tree = {"metadata": metadata, "spec": {"nodeName": "a", **spec}, "status": {"phase": "Running"}}
        asyncio.run(self.source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))


@pytest.fixture
def watch():
    return Watch()


def test_a_pod_below_the_limit_is_read_in_full(watch):
    watch.add(containers=[{"name": "c", "resources": {"requests": {"a.b/c": "1"}}}], tolerations=[{}] * (LIMIT - 50))
    assert len(watch.pod.spec.tolerations) == LIMIT - 50
    assert watch.skipped == []


@pytest.mark.parametrize("field", MANY)
def test_a_pod_keeps_its_node_its_claims_its_controller_and_what_its_containers_request(field, watch, caplog):
    zeros = {f"a.b/{number}": "0" for number in range(LIMIT)}
    containers = [{"name": "c", "resources": {"requests": {**zeros, "a.b/c": "2"}, "limits": {"a.b/d": "3"}}}, {}]
    with caplog.at_level(logging.WARNING, "railwright.cluster"):
        for _ in range(2):
            watch.add(containers=containers, resourceClaims=[{"name": "rails"}], **{field: MANY[field]})
    requests = amounts.compute_requests(watch.pod.spec)
    assert (requests["a.b/c"], requests["a.b/d"]) == (2000, 3000)
    assert (watch.pod.spec.node_name, watch.pod.status.phase) == ("a", "Running")
    assert [claim.name for claim in watch.pod.spec.resource_claims] == ["rails"]
    assert watch.pod.metadata.controller.name == "j"
    assert watch.known.cluster.pods["u"].requests["a.b/c"] == 2000
    assert watch.skipped == [("pods", "skipped")] * 2
    (record,) = caplog.records
    assert record.message == "object read in part: shorten its lists and texts"
    assert (record.fields["kind"], record.fields["object"]) == ("pods", "prod/p")
    assert f"at most {LIMIT} are read" in record.fields["error"]


def test_a_job_with_too_many_values_is_left_out():
    (spec,) = [watch for watch in state.list_watches(state.State()) if watch.kind.name == "jobs.batch.volcano.sh"]
    skipped = []
    source = reflector.Reflector(None, spec, lambda *counted: skipped.append(counted))
    tree = {"metadata": {"name": "j", "uid": "u"}, "spec": {"tasks": [{}] * (frameworks.MAX_VALUES + 1)}}
    asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))
    assert (source.objects, skipped) == (0, [(spec.kind.name, "skipped")])
