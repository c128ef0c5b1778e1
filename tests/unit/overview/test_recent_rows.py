"""Recent admissions, from the records on pods, and recent Events."""

import json

import msgspec
import placing
import pytest

from railwright.fabric import names, views
from railwright.fabric.overview import overview_types, pods_and_events

RECORD = {
    "fabric": "roce", "role": "worker", "rails": ["rail0", "rail1"], "added": ["env A", "env B"],
    "kept": {"NCCL_ALGO": ["user"]}, "skipped": {"mounts": {"code": "SkippedByAnnotation", "message": "left out"}},
    "reasons": {"env A": "b" * 999},
}  # fmt: skip


def pod(name, at="2026-11-21T10:00:00Z", record=RECORD, **labels):
    annotations = {} if record is None else {names.INJECTION: record if isinstance(record, str) else json.dumps(record)}
    meta = {"name": name, "namespace": "a", "uid": name, "creationTimestamp": at, "annotations": annotations}
    return msgspec.convert({"metadata": {**meta, "labels": {names.FABRIC: "roce", **labels}}}, views.Pod)


def rows(*pods) -> list[overview_types.Admission]:
    known = pods_and_events.OptedInPods()
    known.replace(pods)
    return list(known.admissions.list_newest())


def test_a_record_is_shown_in_numbers():
    (row,) = rows(pod("p"))
    assert (row.outcome, row.rails, row.added, row.user_values, row.skipped) == (overview_types.INJECTED, 2, 2, 1, 1)
    assert row.message == "mounts: left out"


def test_a_role_without_rails_is_left_alone():
    assert rows(pod("p", record={**RECORD, "rails": [], "role": "launcher"}))[0].outcome == overview_types.SKIPPED


def test_an_opted_in_pod_without_a_record_is_shown_as_missed():
    (row,) = rows(pod("p", record=None))
    assert row.outcome == overview_types.MISSED
    assert row.message.startswith("NotInjected: the pod opted in but has no annotation railwright.io/injection")
    assert "has no annotation" in row.message


def test_a_pod_that_admission_does_not_cover_is_not_listed_as_uninjected():
    unrecorded = pod("p", record=None)
    mirror = placing.change_pod(unrecorded, metadata={"annotations_or_none": {"kubernetes.io/config.mirror": "x"}})
    system = placing.change_pod(unrecorded, metadata={"namespace": "kube-system", "uid": "system"})
    assert rows(mirror, system) == []


def test_an_unreadable_record_does_not_fail_the_overview():
    assert {row.outcome for row in rows(pod("p", record="{"), pod("q", record="[" * 100_000))} == {
        overview_types.MISSED
    }


def test_the_newest_admissions_come_first_up_to_the_limit():
    row = rows(*(pod(f"p-{i}", at=f"2026-11-21T10:{i // 60:02}:{i % 60:02}Z") for i in range(2500)))
    assert len(row) == pods_and_events.MAX_ROWS
    assert [row.object for row in row[:2]] == ["a/p-2499", "a/p-2498"]


def test_equal_results_of_a_gangs_pods_are_one_row_with_their_number_and_times():
    of_gang = {"volcano.sh/job-name": "j", "volcano.sh/job-namespace": "a"}
    pods = [pod(f"p-{i}", at=f"2026-11-21T10:00:{i:02}Z", **of_gang) for i in range(16)]
    odd = pod("p-16", at="2026-11-21T10:01:00Z", record=None, **of_gang)
    alone = [pod("q-0"), pod("q-1")]
    assert len({row.gang for row in rows(*pods)}) == 1
    row = rows(*pods, odd, *alone)
    assert [(row.object, row.outcome, row.count) for row in row] == [
        ("a/p-16", "missed", 1),
        ("a/p-15", "injected", 16),
        ("a/q-1", "injected", 1),
        ("a/q-0", "injected", 1),
    ]
    assert (row[1].at, row[1].first_at) == ("2026-11-21T10:00:15Z", "2026-11-21T10:00:00Z")


def test_a_pod_that_is_seen_again_is_not_counted_twice():
    known = pods_and_events.OptedInPods()
    for _ in range(3):
        known.upsert(pod("p"))
    assert [row.count for row in known.admissions.list_newest()] == [1]


def test_a_pod_that_did_not_opt_in_is_not_stored():
    known = pods_and_events.OptedInPods()
    known.upsert(msgspec.convert({"metadata": {"name": "x", "labels": {"a": "b"}}}, views.Pod))
    known.upsert(pod("y", record=None, **{names.FABRIC: names.FABRIC_NONE}))
    assert not known.gangs
    assert not known.admissions.list_newest()


def test_only_the_fields_of_a_record_that_placement_reads_are_stored():
    known = pods_and_events.OptedInPods()
    known.upsert(pod("p"))
    reduced = known.get_pod("p")
    assert json.loads(reduced.metadata.annotations[names.INJECTION]) == {"fabric": "roce", "rails": ["rail0", "rail1"]}


# --- Events of the webhook and the extender -------------------------------------------------------------------


def event(component="railwright-webhook", name="e", count=2, at="2026-11-21T11:00:00Z", **more):
    tree = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": None},
        "involvedObject": {"kind": "Job", "namespace": "a", "name": "j"},
        "reason": "FabricRefused", "message": "no such fabric: x", "type": "Warning",
        "source": {"component": component}, "lastTimestamp": at, "count": count, **more,
    }  # fmt: skip
    return msgspec.convert(tree, views.Event)


def test_only_events_of_railwright_are_rows_and_a_repeated_one_is_one_row():
    events = pods_and_events.RecentEvents()
    events.replace([event(), event("kubelet", name="other")])
    events.upsert(event(count=5))
    (row,) = events.list_newest()
    assert (row.kind, row.object, row.reason, row.message, row.count, row.is_warning, row.code) == (
        "Job", "a/j", "FabricRefused", "no such fabric: x", 5, True, ""
    )  # fmt: skip
    events.remove(event())
    assert events.list_newest()


@pytest.mark.parametrize("code", ["CapacityInsufficient", "HostNetwork", "unknown-fabric", "N09"])
def test_the_code_in_front_of_a_message_is_a_field_of_its_own(code):
    events = pods_and_events.RecentEvents()
    message = f"{code}: 8 pods remain; the cluster has slots for 6"
    events.upsert(event("railwright-extender", reason="GangNeverFits", message=message))
    (row,) = events.list_newest()
    assert (row.code, row.message) == (code, "8 pods remain; the cluster has slots for 6")


def test_the_newest_events_come_first_and_their_number_is_bounded():
    events = pods_and_events.RecentEvents()
    for index in range(1000):
        events.upsert(event(name=f"e-{index}", at=f"2026-11-21T10:{index // 60:02}:{index % 60:02}Z"))
    rows = events.list_newest()
    assert len(rows) == pods_and_events.MAX_ROWS
    assert rows[0].at == "2026-11-21T10:16:39Z"


def test_the_generation_grows_only_when_rows_change():
    events = pods_and_events.RecentEvents()
    events.upsert(event())
    events.upsert(event())
    assert events.rows.generation == 1
