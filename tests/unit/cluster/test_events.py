"""Names, number and rate of written Events, with a clock that the test sets."""

import asyncio
import collections
import datetime as dt

import msgspec
import pytest

from railwright.cluster import errors, events

ABOUT = events.InvolvedObject("ReplicaSet", "apps/v1", "prod", "train", "u-1")


def build_error(status: int) -> errors.ApiError:
    return errors.ApiError(status, "", "", "")


class Board:
    """A poster of Events, and an API server that stores them by name."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.stored: dict[str, dict] = {}
        self.requests = 0
        self.failure: errors.ClusterError | None = None
        self.results: collections.Counter[str] = collections.Counter()
        self.events = self.build_poster()

    def build_poster(self) -> events.Events:
        return events.Events(
            self,
            "railwright-test",
            now=lambda: dt.datetime(2026, 11, 21, tzinfo=dt.UTC),
            clock=lambda: self.seconds,
            on_result=lambda result: self.results.update([result]),
        )

    async def post(self, path: str, body: object) -> bytes:
        self.requests += 1
        if self.failure is not None:
            raise self.failure
        event = msgspec.to_builtins(body)
        assert path == f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        if event["metadata"]["name"] in self.stored:
            raise build_error(409)
        self.stored[event["metadata"]["name"]] = event
        return b"{}"

    def add(
        self, message: str = "m", about: events.InvolvedObject = ABOUT, poster: events.Events | None = None
    ) -> None:
        (poster or self.events).post(about, warning=True, reason="R", message=message)

    def write(self, poster: events.Events | None = None) -> int:
        """Write the queued Events that are due, and return the number of requests."""

        async def run() -> None:
            task = asyncio.create_task((poster or self.events).run())
            for _ in range(3000):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        before = self.requests
        asyncio.run(run())
        return self.requests - before


def test_equal_events_of_two_replicas_are_written_once():
    board = Board()
    other = board.build_poster()
    board.add()
    board.add(poster=other)
    assert (board.write(), board.write(other)) == (1, 1)
    (event,) = board.stored.values()
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Warning", "R", "m", 1)
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("ReplicaSet", "train")
    assert board.results == {events.WRITTEN: 2}


def test_a_refused_event_does_not_block_other_events():
    board = Board()
    board.failure = build_error(403)
    board.add()
    board.write()
    board.failure = None
    board.add("other")
    assert board.write() == 1
    assert board.results == {events.FAILED: 1, events.WRITTEN: 1}


def test_an_equal_event_is_tried_again_after_ten_minutes():
    board = Board()
    written = []
    for board.seconds in (0.0, 1.0, events.REPEAT_SECONDS - 1, events.REPEAT_SECONDS, events.REPEAT_SECONDS + 1):
        board.add()
        written.append(board.write())
    assert written == [1, 0, 0, 1, 0]


def test_forged_owners_share_the_event_limit_of_their_namespace():
    board = Board()
    for number in range(400):
        board.add(about=msgspec.structs.replace(ABOUT, name=f"forged-{number}"))
    assert board.write() == events.NAMESPACE_EVENTS == 100
    assert board.results[events.HELD_BACK] == 300
    board.add(about=msgspec.structs.replace(ABOUT, namespace="other"))
    assert board.write() == 1
    board.seconds += events.NAMESPACE_SECONDS
    board.add(about=msgspec.structs.replace(ABOUT, name="forged-400"))
    assert board.write() == 1


@pytest.mark.parametrize(
    "about",
    [
        {"namespace": "../../namespaces/kube-system"},
        {"namespace": ""},
        {"name": "x" * 1_000_000},
        {"uid": "x" * 1_000_000},
    ],
    ids=["a path", "no namespace", "a long name", "a long uid"],
)
def test_an_event_with_an_invalid_object_reference_is_not_sent(about):
    board = Board()
    board.add("forged", msgspec.structs.replace(ABOUT, **about))
    board.add("x" * 5000)
    assert board.write() == 1
    assert [event["message"] for event in board.stored.values()] == ["x" * 1024]
    assert board.results == {events.DROPPED: 1, events.WRITTEN: 1}


def test_a_full_queue_drops_events():
    board = Board()
    for number in range(events.QUEUE + 5):
        board.add(about=msgspec.structs.replace(ABOUT, namespace=f"n{number}"))
    assert board.results == {events.DROPPED: 5}


def test_memory_for_events_is_bounded():
    board = Board()
    for number in range(2 * events.KNOWN):
        board.seconds += 1
        board.add(about=msgspec.structs.replace(ABOUT, namespace=f"n{number}"))
        board.events._queue.get_nowait()
        assert len(board.events._known) <= events.KNOWN
    assert len(board.events._counted) <= events.NAMESPACE_SECONDS
