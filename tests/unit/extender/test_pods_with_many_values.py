"""A watched pod, or a job, with more values than placement reads is left out."""

import asyncio
import logging

import msgspec

from extender import state
from railwright.cluster import reflector, resources
from railwright.fabric.workloads import frameworks

LIMIT = resources.MAX_POD_VALUES


def test_a_pod_with_too_many_values_is_ignored_and_logged_once(caplog):
    known, skipped = state.State(), []
    (spec,) = [watch for watch in state.list_watches(known) if watch.kind is resources.PLACED_PODS]
    source = reflector.Reflector(None, spec, lambda *counted: skipped.append(counted))

    def add(name: str, values: int) -> None:
        pod_spec = {"nodeName": "a", "containers": [{"name": "c"}], "tolerations": [{}] * values}
        tree = {"metadata": {"name": name, "namespace": "prod", "uid": name}, "spec": pod_spec}
        asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))

    with caplog.at_level(logging.WARNING, "railwright.cluster"):
        add("small", LIMIT - 50)
        for _ in range(2):
            add("large", LIMIT + 1)
    assert list(known.cluster.pods) == ["small"]
    assert skipped == [("pods", "skipped")] * 2
    (record,) = caplog.records
    assert (record.fields["kind"], record.fields["object"]) == ("pods", "prod/large")
    assert f"the limit is {LIMIT}: shorten its lists" in record.fields["error"]


def test_a_job_with_too_many_values_is_ignored():
    (spec,) = [watch for watch in state.list_watches(state.State()) if watch.kind.name == "jobs.batch.volcano.sh"]
    skipped = []
    source = reflector.Reflector(None, spec, lambda *counted: skipped.append(counted))
    tree = {"metadata": {"name": "j", "uid": "u"}, "spec": {"tasks": [{}] * (frameworks.MAX_VALUES + 1)}}
    asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))
    assert (source.objects, skipped) == (0, [(spec.kind.name, "skipped")])
