"""What is kept of opted-in pods."""

import json

import msgspec

from railwright.fabric import names, views
from railwright.fabric.overview import opted_in_pods

RECORD = {"fabric": "roce", "role": "worker", "rails": ["rail0", "rail1"], "added": ["env A", "env B"]}


def pod(name, record=RECORD, **labels):
    annotations = {} if record is None else {names.INJECTION: record if isinstance(record, str) else json.dumps(record)}
    meta = {"name": name, "namespace": "a", "uid": name, "annotations": annotations}
    return msgspec.convert({"metadata": {**meta, "labels": {names.FABRIC: "roce", **labels}}}, views.Pod)


def test_a_pod_that_did_not_opt_in_is_not_stored():
    known = opted_in_pods.OptedInPods()
    known.upsert(msgspec.convert({"metadata": {"name": "x", "labels": {"a": "b"}}}, views.Pod))
    known.upsert(pod("y", record=None, **{names.FABRIC: names.FABRIC_NONE}))
    assert not known.gangs


def test_only_the_fields_of_a_record_that_placement_reads_are_stored():
    known = opted_in_pods.OptedInPods()
    known.upsert(pod("p"))
    reduced = known.get_pod("p")
    assert json.loads(reduced.metadata.annotations[names.INJECTION]) == {"fabric": "roce", "rails": ["rail0", "rail1"]}


def test_an_unreadable_record_is_truncated():
    known = opted_in_pods.OptedInPods()
    known.replace([pod("p", record="{"), pod("q", record="[" * 100_000)])
    assert [len(known.get_pod(uid).metadata.annotations[names.INJECTION]) for uid in ("p", "q")] == [1, 500]
