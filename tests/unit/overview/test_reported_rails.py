"""Rails that are reported not to work, as `railwright fabric` and the dashboard show them."""

import msgspec
import placing
import pytest
import reporting
from reporting import CHAR_DEVICE, STATE, condition, issm_missing, port_down

from railwright.fabric.overview import overview_builder, pods_and_events


class Overview:
    def __init__(self, by, *, pods=()):
        self.reported = reporting.ReportedCluster(placing.leaves(a=2), by)
        self.reported.state.replace_pods(list(pods))
        known = pods_and_events.OptedInPods()
        known.replace(list(pods))
        self.builder = overview_builder.OverviewBuilder(
            self.reported.state, placing.create_assumed_pods(), known, lambda: by, {}
        )

    def node(self, name="a-00"):
        self.builder.refresh_fully()
        leaves = self.builder.build_overview(source="test").leaves.values()
        return next(node for leaf in leaves for node in leaf.nodes if node.name == name)


@pytest.fixture
def seen():
    return Overview(reporting.policy())


def test_an_excluded_rail_is_dead_with_source_time_and_cause(seen):
    assert seen.node().rails == "ffff"
    seen.reported.report("a-00", condition(STATE, port_down("mlx5_3")))
    node = seen.node()
    assert node.rails == "fffd"
    [note] = node.rail_notes
    assert note == (
        "rail3: InfiniBandStateCheck since 2026-08-12T23:00:02Z: NIC:mlx5_3 NICPort:1 Port mlx5_3 port 1: state DOWN, "
        "phys_state Disabled Recommended Action=REPLACE_VM (exclude)"
    )
    assert seen.node("a-01").rails == "ffff"
    fabric = seen.builder.build_overview(source="test").fabrics[0]
    assert (fabric.rails_free, fabric.rails_dead) == (7, 1)


def test_an_avoided_rail_is_degraded_and_an_ignored_one_only_noted(seen):
    seen.reported.report("a-00", condition(CHAR_DEVICE, issm_missing("mlx5_1")))
    assert seen.node().rails == "fwff"
    ignoring = Overview(reporting.policy(health={"reports": {CHAR_DEVICE: "ignore"}}))
    ignoring.reported.report("a-00", condition(CHAR_DEVICE, issm_missing("mlx5_1")))
    assert ignoring.node().rails == "ffff"
    [note] = ignoring.node().rail_notes
    assert note.endswith("(ignore)")


def test_a_report_that_has_ended_is_noted_until_it_no_longer_counts(seen):
    seen.reported.report("a-00", condition(STATE, port_down("mlx5_3")))
    seen.reported.report("a-00", condition(STATE))
    [note] = seen.node().rail_notes
    assert note.endswith("(exclude; the report has ended, and counts for a while)")
    seen.reported.wait(60)
    assert (seen.node().rails, seen.node().rail_notes) == ("ffff", ())


def test_an_overview_ends_reports_by_itself(seen):
    seen.reported.report("a-00", condition(STATE, port_down("mlx5_3")))
    seen.reported.report("a-00", condition(STATE))
    seen.reported.clock.now += 60
    assert (seen.node().rails, seen.node().rail_notes) == ("ffff", ())


def test_what_the_devices_show_is_noted_only_while_it_is_held(seen):
    node = seen.reported.nodes["a-00"]
    allocatable = {**node.status.allocatable, placing.RESOURCES[2]: "0"}
    status = msgspec.structs.replace(node.status, allocatable_or_none=allocatable)
    seen.reported.state.upsert_node(msgspec.structs.replace(node, status=status))
    assert (seen.node().rails, seen.node().rail_notes) == ("ffdf", ())
    seen.reported.report("a-00")
    assert seen.node().rails == "ffwf"
    assert seen.node().rail_notes == ("rail2: DeviceUnhealthy (avoid; the report has ended, and counts for a while)",)
