"""Answers of a leader and a standby, and what a leader forgets after another one has led."""

import extending
import pytest
from placing import node, pod

from extender import leadership
from railwright.cluster import errors, lease
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.workloads.membership import GangKey, Rank
from railwright.serving import metrics, routes, settings

AT = leadership.PodAddress(pod="extender-1", namespace="railwright-system", ip="10.0.0.1")
CALL = routes.Call(b"", {}, {}, {}, "")


class Part(extending.Site):
    """A candidate whose Lease the test sets."""

    def __init__(self) -> None:
        super().__init__([node("a-0", "a")])
        self.counters = metrics.Metrics("extender")
        self.leading = leadership.Leadership(self.verbs.decider, self.counters)
        self.turns: list[bool] = []

    def stand(self) -> None:
        self.leading.build_election(None, AT, seconds=3, eligible=lambda: True)  # type: ignore[arg-type] # it asks nobody
        self.leading.notify(self.turns.append)

    def hold(self, transitions: int, holder: str = "") -> None:
        """Set the holder of the Lease, by default this process, and its term."""
        election = self.leading.election
        assert election is not None
        record = lease.Record(holder_identity=holder or election.identity, lease_transitions=transitions)
        now = election._clock()
        election._candidate = lease.observe(election._candidate, record, now)
        if not holder:
            election._candidate = lease.acquire(election._candidate, record, now, now)
        election._report_change()

    def announce(self, uid: str = "p") -> None:
        entry = assumed_pods.AssumedPod(
            uid, "train/p", GangKey("g"), Rank(1, 0, "p"), "a-0", {}, assumed_pods.State.ALLOCATED, 0.0
        )
        self.state.assumed.assume(entry)


def build_gated_routes(part: Part) -> list[routes.Route]:
    table = [routes.Route("/scheduler/filter", lambda _: routes.Reply(b"{}"))]
    return part.leading.gate(table)


def test_a_single_extender_always_answers():
    part = Part()
    assert part.leading.is_leader
    [route] = build_gated_routes(part)
    assert route.handle(CALL) == routes.Reply(b"{}")
    part.leading.resign()
    assert part.leading.is_leader


def test_a_standby_names_the_leader_and_its_address():
    part = Part()
    part.stand()
    [route] = build_gated_routes(part)
    with pytest.raises(routes.HttpError, match="nobody leads yet; reconnect to the Service railwright-extender"):
        route.handle(CALL)
    part.hold(1, "extender-2_0a1b2c3d")
    with pytest.raises(routes.HttpError, match="extender-2 leads") as refused:
        route.handle(CALL)
    assert refused.value.status == 503
    part.hold(2)
    assert route.handle(CALL) == routes.Reply(b"{}")
    assert part.turns == [False, True]
    assert part.counters.registry.get_sample_value("railwright_leader_transitions_total") == 1


def test_a_leader_that_resigned_answers_503():
    part = Part()
    part.stand()
    part.hold(0)
    part.leading.resign()
    assert not part.leading.is_leader
    assert part.turns == [False, True, False]


def test_assumed_pods_are_forgotten_only_after_another_replica_has_led():
    part = Part()
    part.state.cluster.upsert_pod(pod("seen", group="gang"))
    part.stand()
    part.hold(4)
    part.announce()
    part.leading.election._step_down()  # the API server did not answer in time
    part.hold(4)
    assert len(part.state.assumed) == 1, "no other request arrived"
    gangs, explanations = part.verbs.decider.gangs, part.verbs.decider.explanations
    part.hold(5, "extender-2_0a1b2c3d")
    part.hold(6)
    assert len(part.state.assumed) == 0
    assert part.verbs.decider.gangs is not gangs
    assert part.verbs.decider.explanations is not explanations
    assert len(part.state.cluster.pods) == 1, "what the cluster shows stays"


def test_a_lease_is_renewed_often_enough_and_held_for_less_than_others_wait():
    timings = leadership.build_timings(3.0)
    assert (timings.duration, timings.renew, timings.retry) == (3.0, 2.0, 0.4)


def test_the_lease_has_the_duration_of_client_go_by_default():
    options = settings.parse("extender", ["--plain-http", "--listen=127.0.0.1:0"], {})
    timings = leadership.build_timings(options.lease_seconds)
    assert (timings.duration, timings.renew, timings.retry) == (15.0, 10.0, 2.0)
    assert timings == lease.Timings()


def test_every_missing_variable_is_named_with_where_it_comes_from():
    full = {"POD_NAME": "extender-1", "POD_NAMESPACE": "railwright-system", "POD_IP": "10.0.0.1"}
    assert leadership.get_pod_address(full) == AT
    with pytest.raises(errors.ConfigurationError, match="POD_NAME, POD_IP not set: set them from the downward API"):
        leadership.get_pod_address({"POD_NAMESPACE": "x", "POD_IP": ""})
