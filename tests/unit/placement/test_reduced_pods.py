"""The stored fields of opted-in pods."""

import json

import msgspec
import placing
import pytest

from railwright.fabric import names, views
from railwright.fabric.placement.state import object_info
from railwright.fabric.workloads import volcano

RECORD = {"fabric": "roce", "role": "worker", "rails": ["rail0", "rail1"], "added": ["env A", "env B"]}


def pod(name, record=RECORD, **labels):
    annotations = {} if record is None else {names.INJECTION: record if isinstance(record, str) else json.dumps(record)}
    meta = {"name": name, "namespace": "a", "uid": name, "annotations": annotations}
    return msgspec.convert({"metadata": {**meta, "labels": {names.FABRIC: "roce", **labels}}}, views.Pod)


def reduce(tree: views.Pod) -> views.Pod | None:
    return object_info.PodReducer().reduce(tree)


def test_a_pod_that_did_not_opt_in_is_not_stored():
    assert reduce(msgspec.convert({"metadata": {"name": "x", "labels": {"a": "b"}}}, views.Pod)) is None
    assert reduce(pod("y", record=None, **{names.FABRIC: names.FABRIC_NONE})) is None


def test_only_the_fields_of_a_record_that_placement_reads_are_kept():
    record = reduce(pod("p")).metadata.annotations[names.INJECTION]
    assert json.loads(record) == {"fabric": "roce", "rails": ["rail0", "rail1"]}


@pytest.mark.parametrize("record", ["{", "[" * 100_000])
def test_an_unreadable_record_is_stored_as_one_without_a_fabric(record):
    stored = reduce(pod("p", record)).metadata.annotations[names.INJECTION]
    assert json.loads(stored) == {"fabric": "", "rails": None}


@pytest.mark.parametrize("key", [names.RAILS, names.SEGMENT, volcano.GROUP_ANNOTATION])
def test_the_annotations_that_placement_reads_are_kept(key):
    policy = placing.change_fabric(placing.build_policy(), nvlink_segment=4)
    pod = placing.build_pod("g-0", rails=0, annotations={key: "2"})

    def read(from_pod: views.Pod) -> tuple:
        request = placing.build_request(from_pod, ["n"], policy)
        return request.rails, request.segment, request.gang

    assert read(reduce(pod)) == read(pod) != read(placing.build_pod("g-0", rails=0))
