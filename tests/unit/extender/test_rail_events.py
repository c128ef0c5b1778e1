"""Events that tell running gangs which of their rails are reported not to work."""

import msgspec
import placing
import pytest
import reporting
from reporting import CHAR_DEVICE, STATE, condition, issm_missing, port_down

from extender import gang_events
from extender import state as states
from railwright.cluster import events
from railwright.fabric.policy import model


class Poster(events.Events):
    """Collects the Events that are posted."""

    def __init__(self):
        self.posted = []

    def post(self, involved, *, warning, reason, message):
        self.posted.append((involved.kind, involved.name, warning, reason, message))


class Site:
    """Two nodes with a gang of two, told by a clock of the test."""

    def __init__(self, *, pods=None, is_leader=True):
        self.clock, self.poster, self.is_leader = reporting.Clock(), Poster(), is_leader
        self.state = states.State(assume_seconds=30, clock=self.clock)
        self.nodes = {node.metadata.name: node for node in placing.leaves(a=2)}
        self.state.cluster.replace_nodes(list(self.nodes.values()))
        gang = [placing.pod(f"w-{rank}", group="g", on=f"a-0{rank}") for rank in range(2)]
        self.state.cluster.replace_pods(gang if pods is None else pods)
        self.state.apply_policy(reporting.policy())
        self.events = gang_events.RailEvents(self.state, gang_events.PodGroups(), self.poster, lambda: self.is_leader)

    def report(self, name, *conditions):
        self.state.cluster.upsert_node(reporting.with_conditions(self.nodes[name], *conditions))

    def wait(self, seconds):
        for _ in range(seconds):
            self.clock.now += 1
            self.state.expire()
            self.events.update()
        posted, self.poster.posted = self.poster.posted, []
        return posted


def test_a_gang_is_told_once_which_rail_of_which_node():
    site = Site()
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    [(kind, name, warning, reason, message)] = site.wait(10)
    assert (kind, name, warning, reason) == ("Pod", "w-1", True, "GangRailReported")
    assert message == (
        "RailReported: a-01: InfiniBandStateCheck reports rail3 since 2026-08-12T23:00:02Z: NIC:mlx5_3 NICPort:1 Port "
        "mlx5_3 port 1: state DOWN, phys_state Disabled Recommended Action=REPLACE_VM (exclude)"
    )
    assert site.wait(100) == []


def test_a_report_that_has_ended_is_told_again_only_when_it_returns():
    site = Site()
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == 1
    site.report("a-01", condition(STATE))
    assert site.wait(10) == []
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == 1


def test_a_report_of_a_moment_is_not_told():
    site = Site()
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert site.wait(3) == []
    site.report("a-01", condition(STATE))
    assert site.wait(100) == []


def test_the_event_is_one_for_all_rails_of_a_gang_and_limited():
    site = Site()
    for name in ("a-00", "a-01"):
        site.report(name, condition(STATE, *[port_down(f"mlx5_{number}") for number in range(4)]))
    [(_, name, _, _, message)] = site.wait(10)
    assert name in {"w-0", "w-1"}
    assert message.count("InfiniBandStateCheck") == 3
    assert message.endswith("; and 5 more")
    assert len(message) <= 1024


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([placing.pod("idle", on="a-01", rails=0)], id="without rails"),
        pytest.param([placing.pod("there", on="a-00")], id="on another node"),
    ],
)
def test_pods_that_do_not_use_the_rail_are_told_nothing(pods):
    site = Site(pods=pods)
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert site.wait(10) == []


@pytest.mark.parametrize(("rails", "events"), [('["rail0","rail3"]', 1), ('["rail0"]', 0), ("[]", 0)])
def test_a_pod_of_rails_without_a_resource_uses_those_of_its_record(rails, events):
    record = f'{{"version":"1","policy":"sha256:p","fabric":"roce","rails":{rails}}}'
    pod = placing.pod("w-1", on="a-01", rails=0, annotations={"railwright.io/injection": record})
    site = Site(pods=[pod])
    policy = reporting.policy()
    fabric = policy.document.fabrics["roce"]
    rails_without = tuple(msgspec.structs.replace(rail, resource=None) for rail in fabric.rails)
    fabrics = {"roce": msgspec.structs.replace(fabric, rails=rails_without)}
    site.state.apply_policy(model.Policy(msgspec.structs.replace(policy.document, fabrics=fabrics), digest="sha256:n"))
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == events


def test_an_ignored_report_is_not_told():
    site = Site()
    site.state.apply_policy(reporting.policy(health={"reports": {CHAR_DEVICE: "ignore"}}))
    site.report("a-01", condition(CHAR_DEVICE, issm_missing("mlx5_3")))
    assert site.wait(10) == []


def test_a_standby_tells_nothing_and_repeats_nothing_when_it_leads():
    site = Site(is_leader=False)
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert site.wait(10) == []
    site.is_leader = True
    assert site.wait(10) == []
    site.report("a-00", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == 1
