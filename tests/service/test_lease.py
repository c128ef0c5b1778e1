"""One leader by a Lease, over real sockets, with an API server that is away, slow, or has forgotten."""

import asyncio
import time

import api_stub
import objects_stub
import pytest
import pytest_asyncio
import shell

from railwright.cluster import client as clients
from railwright.cluster import lease

QUICK = lease.Timings(duration=1.0, renew=0.6, retry=0.1)
NAME = "railwright-extender"
PATH = objects_stub.LEASES.format("prod", NAME)
STEP_SECONDS = 0.01


@pytest_asyncio.fixture(loop_scope="session")
async def leases():
    async with objects_stub.serving() as made:
        yield made


class Clock:
    """Clock that goes on by at most one step in an iteration of the event loop. A call returns its seconds.

    A busy machine lets a process stand still, and then every deadline would have passed at once: a caller would get no
    turn between two that are a second apart.
    """

    def __init__(self) -> None:
        self._now = 1000.0

    def __call__(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced by this time."""
        end = self._now + seconds
        while self._now < end:  # noqa: ASYNC110 - a condition of the clock itself
            await asyncio.sleep(STEP_SECONDS)

    async def run(self) -> None:
        """Advance until cancelled, never faster than the machine's clock."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self._now += STEP_SECONDS


@pytest_asyncio.fixture(loop_scope="session")
async def clock():
    made = Clock()
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Candidate:
    """A running candidate and the changes of its leadership."""

    def __init__(self, client, name: str, timings: lease.Timings, clock) -> None:
        self.changes: list[bool] = []
        self.election = lease.Election(
            client, "prod", NAME, name, timings=timings, changed=self.changes.append, clock=clock
        )
        self.task = asyncio.create_task(self.election.run())

    async def kill(self) -> None:
        """Its end without a word, as by kill -9: nothing is given back."""
        self.election._release = _nothing  # type: ignore[method-assign]
        await self.end()

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def _nothing() -> None:
    pass


@pytest_asyncio.fixture(loop_scope="session")
async def stand(leases, clock, tmp_path):
    client = await clients.connect(api_stub.kubeconfig(tmp_path, leases.port))
    running: list[Candidate] = []

    def started(name: str, timings: lease.Timings = QUICK, by=clock) -> Candidate:
        running.append(Candidate(client, name, timings, by))
        return running[-1]

    yield started
    for process in running:
        await process.kill()
    await client.close()


async def measure(clock, condition) -> float:
    """Return the seconds until the condition is true."""
    began = clock()
    await shell.until(condition)
    return clock() - began


async def led_by(first: Candidate) -> Candidate:
    await shell.until(lambda: first.election.leading)
    return first


async def test_the_first_candidate_leads_and_the_second_knows_the_leader(leases, stand, clock):
    one = await led_by(stand("one"))
    two = stand("two")
    await shell.until(lambda: two.election.holder == "one")
    await clock.sleep(1.5)
    assert one.election.leading
    assert not two.election.leading
    assert (one.changes, two.changes) == ([True], [])
    spec = leases.stored[PATH]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 1, 0)


async def test_a_leader_sends_one_request_for_each_renewal(leases, stand):
    await led_by(stand("one"))
    del leases.asked[:]
    await shell.until(lambda: len(leases.asked) > 5)
    assert {method for method, _ in leases.asked} == {"PUT"}


async def test_a_resigned_leader_is_followed_at_once(leases, stand, clock):
    one = await led_by(stand("one"))
    two = stand("two")
    await shell.until(lambda: two.election.holder == "one")
    one.election.resign()
    assert not one.election.leading
    assert one.changes == [True, False]
    assert await measure(clock, lambda: two.election.leading) < 0.5
    assert leases.stored[PATH]["spec"]["leaseTransitions"] == 1
    await clock.sleep(0.3)
    assert not one.election.leading, "it stands no more"


async def test_cancellation_releases_the_lease(leases, stand):
    one = await led_by(stand("one"))
    await one.end()
    assert leases.holder(PATH) == ""
    assert one.changes == [True, False]


@pytest.mark.parametrize("fault", [objects_stub.HANG, 503, 409])
async def test_a_leader_stops_in_time_when_nothing_is_renewed(leases, stand, clock, fault):
    one = await led_by(stand("one"))
    leases.fault = lambda _: fault
    assert await measure(clock, lambda: one.changes == [True, False]) < QUICK.duration
    assert not one.election.leading


async def test_a_leader_that_was_suspended_no_longer_leads(stand):
    one = await led_by(stand("one", by=lease.read_uptime))
    time.sleep(0.7)  # noqa: ASYNC251 - a process that is stopped
    assert not one.election.leading
    await shell.until(lambda: one.changes in ([True, False, True], [True]))  # nobody else was there, so it leads on


async def test_a_leader_keeps_leading_after_a_short_outage(leases, stand):
    one = await led_by(stand("one"))
    leases.fault = lambda _: 500
    await shell.until(lambda: not one.election.leading)
    leases.fault = lambda _: None
    await shell.until(lambda: one.election.leading)
    assert leases.stored[PATH]["spec"]["leaseTransitions"] == 0


async def test_a_candidate_without_an_answer_does_not_lead(leases, stand):
    leases.fault = lambda request: objects_stub.LOSE if request.method == "PUT" else None
    leases.keep(PATH, {"metadata": {"name": NAME}, "spec": {"holderIdentity": ""}})
    one = stand("one")
    await shell.until(lambda: leases.holder(PATH) == "one")
    assert not one.election.leading
    leases.fault = lambda _: None
    await shell.until(lambda: one.election.leading)


async def test_a_slow_api_server_still_has_a_leader(leases, stand, clock):
    leases.slow_seconds = 0.4  # of 1.2: a look and a write together are over half of it
    one = stand("one", lease.Timings(duration=2.0, renew=1.2, retry=0.1))
    await shell.until(lambda: one.election.leading)
    await clock.sleep(3.0)
    assert one.changes == [True]


async def test_foreign_fields_of_the_lease_stay(leases, stand):
    marks = {"metadata": {"name": NAME, "labels": {"team": "x"}}, "spec": {"strategy": "OldestEmulationVersion"}}
    leases.keep(PATH, marks)
    one = await led_by(stand("one"))
    leases.keep(PATH, leases.stored[PATH] | {"metadata": leases.stored[PATH]["metadata"] | {"annotations": {"a": "b"}}})
    before = leases.stored[PATH]["metadata"]["resourceVersion"]
    await shell.until(lambda: leases.stored[PATH]["metadata"]["resourceVersion"] != before)
    assert one.changes == [True], "a conflict is not a loss"
    stored = leases.stored[PATH]
    assert (stored["metadata"]["labels"], stored["spec"]["strategy"]) == ({"team": "x"}, "OldestEmulationVersion")
    assert stored["metadata"]["annotations"] == {"a": "b"}


async def test_the_holder_restores_a_deleted_lease(leases, stand):
    one = await led_by(stand("one"))
    two = stand("two")
    await shell.until(lambda: two.election.holder == "one")
    del leases.stored[PATH]
    await shell.until(lambda: leases.holder(PATH) == "one")
    await shell.until(lambda: one.election.leading)
    assert two.changes == []
    assert not [path for method, path in leases.asked if method == "POST"], "the right to POST knows no name"


async def test_an_invalid_lease_ends_no_candidate(leases, stand):
    leases.keep(PATH, {"metadata": {"name": NAME}, "spec": {"holderIdentity": 7}})
    one = stand("one")
    await shell.until(lambda: len(leases.asked) > 3)
    assert not one.task.done()
    leases.keep(PATH, {"metadata": {"name": NAME}, "spec": {"holderIdentity": None}})
    await led_by(one)


def test_two_processes_never_have_the_same_identity():
    names = {lease.create_identity("pod-0") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("pod-0_") for name in names)
