"""Only the Events of the webhook and the extender are shown."""

import msgspec
import pytest

from railwright.fabric import views
from railwright.fabric.overview import pods_and_events


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
    events.upsert(event("railwright-extender", reason="GangUnplaceable", message=message))
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
