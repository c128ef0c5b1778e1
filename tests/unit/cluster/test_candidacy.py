"""Never two leaders: candidates with clocks of their own, and an API server that loses, delays and reorders."""

import heapq
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.cluster import lease

TIMINGS = lease.Timings(duration=3.0, renew=2.0, retry=0.5)


def candidate(name: str = "a", **known) -> lease.Candidate:
    return lease.Candidate(identity=name, timings=TIMINGS, **known)


def build_record(by: str, **spec) -> lease.Record:
    return lease.Record(holder_identity=by, lease_duration_seconds=3, lease_transitions=4, **spec)


def test_a_missing_lease_is_created():
    record = lease.propose(candidate(), 100.0, "now")
    assert record == lease.Record("a", 3, "now", "now", 0)


def test_the_lease_of_another_holder_expires_by_the_local_clock():
    observation = lease.observe(candidate(), build_record("b", renew_time="1970-01-01T00:00:00.000000Z"), 100.0)
    assert lease.propose(observation, 102.9, "now") is None
    taken = lease.propose(observation, 103.0, "now")
    assert (taken.holder_identity, taken.lease_transitions) == ("a", 5)


def test_each_change_of_the_lease_restarts_the_wait():
    observation = lease.observe(candidate(), build_record("b", renew_time="1"), 100.0)
    assert lease.get_expiry(lease.observe(observation, build_record("b", renew_time="1"), 102.0)) == 103.0
    assert lease.get_expiry(lease.observe(observation, build_record("b", renew_time="2"), 102.0)) == 105.0


def test_a_released_lease_is_acquired_at_once():
    observation = lease.observe(candidate(), build_record("", renew_time="1"), 100.0)
    assert lease.propose(observation, 100.0, "now") is not None


def test_a_deleted_lease_is_acquired_only_after_its_duration():
    gone = lease.observe(lease.observe(candidate(), build_record("b"), 100.0), None, 101.0)
    assert lease.propose(gone, 102.9, "now") is None
    assert lease.propose(gone, 103.0, "now") is not None


def test_a_lease_lasts_as_long_as_its_holder_wrote():
    observation = lease.observe(candidate(), lease.Record(holder_identity="b", lease_duration_seconds=15), 100.0)
    assert lease.get_expiry(observation) == 115.0


@pytest.mark.parametrize("said", [None, 0, -7])
def test_an_invalid_lease_duration_is_ignored(said):
    observation = lease.observe(candidate(), lease.Record(holder_identity="b", lease_duration_seconds=said), 100.0)
    assert lease.get_expiry(observation) > 100.0


def test_the_lease_of_a_leader_runs_from_before_its_write_was_sent():
    won = lease.acquire(candidate(), build_record("a"), sent=100.0, now=101.5)
    assert lease.is_leader(won, 101.9)
    assert not lease.is_leader(won, 102.0)


def test_a_leader_that_reads_another_holder_stops_leading():
    won = lease.acquire(candidate(), build_record("a"), sent=100.0, now=100.0)
    assert not lease.is_leader(lease.observe(won, build_record("b"), 100.1), 100.1)


def test_renewing_keeps_the_acquire_time_and_the_number_of_transitions():
    won = lease.acquire(candidate(), build_record("a", acquire_time="then"), sent=100.0, now=100.0)
    record = lease.propose(won, 100.5, "now")
    assert record == lease.Record("a", 3, "then", "now", 4)


def test_only_the_holder_releases_the_lease():
    assert lease.release(lease.observe(candidate(), build_record("b"), 1.0), "now") is None
    given_back = lease.release(lease.observe(candidate(), build_record("a"), 1.0), "now")
    assert given_back.holder_identity == ""


def test_a_candidate_never_sleeps_past_its_next_step():
    follower = lease.observe(candidate(), build_record("b"), 100.0)
    assert lease.compute_pause(follower, 102.8, 1.0) == pytest.approx(0.2)
    leader = lease.acquire(candidate(), build_record("a"), sent=100.0, now=100.0)
    assert lease.compute_pause(leader, 101.9, 1.0) == pytest.approx(0.1)
    assert lease.compute_pause(leader, 100.0, 1.0) == pytest.approx(0.6)
    assert lease.compute_pause(follower, 200.0, 0.0) == 0.5


def test_fields_that_others_wrote_into_the_spec_stay():
    spec = lease.merge_spec(
        build_record("a", renew_time="2"),
        {"holderIdentity": "b", "strategy": "OldestEmulationVersion", "renewTime": "1"},
    )
    assert spec["strategy"] == "OldestEmulationVersion"
    assert (spec["holderIdentity"], spec["renewTime"]) == ("a", "2")


@pytest.mark.parametrize(
    ("duration", "renew", "retry"), [(3, 3, 0.5), (3, 2, 1.5), (3, 0, 0), (2, 3, 0.5), (3, 2, -1), (3, float("nan"), 1)]
)
def test_timings_that_allow_two_leaders_are_refused(duration, renew, retry):
    with pytest.raises(ValueError, match="duration must be longer"):
        lease.Timings(duration=duration, renew=renew, retry=retry)


# --- a whole world ------------------------------------------------------------------------------------


class World:
    """Simulates candidates with inaccurate clocks, one Lease and an unreliable network."""

    def __init__(self, seed: int, rates: list[float], *, loss: float, slowest: float) -> None:
        self.chance = chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.loss, self.slowest = loss, [chance.choice((0.01, slowest)) for _ in rates]
        self.rates = rates
        self.offsets = [chance.uniform(-1e6, 1e6) for _ in rates]
        self.known = [candidate(f"c{number}") for number in range(len(rates))]
        self.version, self.record = 0, None
        self.due: list = []
        self.order = itertools.count()
        self.reigns: list[str] = []
        for number in range(len(rates)):
            self.later(chance.uniform(0, 20), self.look, number)

    def clock(self, number: int, true: float) -> float:
        return self.offsets[number] + true * self.rates[number]

    def later(self, true: float, what, *given) -> None:
        heapq.heappush(self.due, (true, next(self.order), what, given))

    def run(self, until: float) -> None:
        while self.due and self.due[0][0] < until:
            true, _, what, given_to = heapq.heappop(self.due)
            what(true, *given_to)
            leaders = [
                candidate.identity
                for number, candidate in enumerate(self.known)
                if lease.is_leader(candidate, self.clock(number, true))
            ]
            assert len(leaders) <= 1, f"at {true:.2f} s: {leaders}"
            if leaders and self.reigns[-1:] != leaders:
                self.reigns += leaders

    def way(self, number: int) -> float:
        return self.chance.uniform(0.001, self.slowest[number])

    def again(self, true: float, number: int) -> None:
        wait = lease.compute_pause(self.known[number], self.clock(number, true), self.chance.random())
        self.later(true + wait / self.rates[number], self.look, number)

    def look(self, true: float, number: int) -> None:
        if self.chance.random() < self.loss:
            self.again(true + 0.5, number)
            return
        self.later(true + self.way(number), self.read, number)

    def read(self, true: float, number: int) -> None:
        self.later(true + self.way(number), self.answered, number, self.version, self.record)

    def answered(self, true: float, number: int, version: int, record) -> None:
        now = self.clock(number, true)
        self.known[number] = lease.observe(self.known[number], record, now)
        written = lease.propose(self.known[number], now, f"{number}@{now}")
        if written is None:
            self.again(true, number)
            return
        lost = self.chance.random() < self.loss
        self.later(true + self.way(number), self.write, number, version, written, now, lost)
        if lost:  # the answer will not come; the write itself may arrive any time, or as late as it likes
            self.again(true + 0.5, number)

    def write(self, true: float, number: int, version: int, record, sent: float, lost: bool) -> None:  # noqa: FBT001 - one event's facts
        if took := version == self.version:
            self.version, self.record = version + 1, record
        if not lost:
            self.later(true + self.way(number), self.wrote, number, took, record, sent)

    def wrote(self, true: float, number: int, took: bool, record, sent: float) -> None:  # noqa: FBT001 - as above
        if took:
            self.known[number] = lease.acquire(self.known[number], record, sent, self.clock(number, true))
        self.again(true, number)


worlds = st.builds(
    lambda seed, rates, loss, slowest: World(seed, rates, loss=loss, slowest=slowest),
    st.integers(0, 2**32),
    st.lists(st.floats(0.9, 1.1), min_size=2, max_size=4),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([0.01, 0.5, 3.0]),
)


@given(worlds)
def test_two_candidates_never_lead_at_once(world):
    world.run(120.0)


@given(st.integers(0, 2**32))
def test_without_faults_one_candidate_leads_and_stays_leader(seed):
    world = World(seed, [1.0, 1.0, 1.0], loss=0.0, slowest=0.05)
    world.run(60.0)
    assert len(world.reigns) == 1


@given(st.integers(0, 2**32))
def test_a_leader_that_died_has_a_successor_within_five_seconds(seed):
    world = World(seed, [1.0, 1.0], loss=0.0, slowest=0.05)

    died = 30.0 + world.chance.random()
    world.run(died)
    number = int(world.reigns[-1][1:])
    world.known[number] = lease.step_down(world.known[number])
    world.due = [entry for entry in world.due if entry[3][0] != number]
    heapq.heapify(world.due)
    world.run(died + 4.5)
    assert lease.is_leader(world.known[1 - number], world.clock(1 - number, died + 4.5))
