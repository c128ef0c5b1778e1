"""Events on the API server: posted once, counted after, never in the way."""

import asyncio
import collections
import datetime as dt
import json

import api_stub
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from railwright.cluster import events

ABOUT = events.Involved(kind="ConfigMap", api_version="v1", namespace="ns", name="policy")


class Board:
    """The written Events, and the clock that dates them."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[tuple[str, str, dict]] = asyncio.Queue()
        self.status = 201
        self.statuses: list[int] = []  # of the next answers, before `status`
        self.now = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)

    async def answer(self, request: web.Request) -> web.Response:
        await self.written.put((request.method, request.path, json.loads(await request.read())))
        return web.json_response({}, status=self.statuses.pop(0) if self.statuses else self.status)

    async def next(self) -> tuple[str, str, dict]:
        return await asyncio.wait_for(self.written.get(), 10)


@pytest_asyncio.fixture(loop_scope="session")
async def board():
    made = Board()
    async with api_stub.serve(made.answer) as made.port:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def posting(board, tmp_path):
    board.became = collections.Counter()
    async with api_stub.connected(tmp_path, board.port) as client:
        made = events.Events(
            client,
            "railwright-test",
            now=lambda: board.now,
            on_result=lambda outcome, count: board.became.update({outcome: count}),
        )
        running = asyncio.create_task(made.run())
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_equal_messages_are_counted_on_one_event(board, posting):
    for message in ("bad", "worse"):
        posting.post(ABOUT, warning=True, reason="PolicyRejected", message=message)
    method, path, first = await board.next()
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/events")
    assert (first["type"], first["reason"], first["count"]) == ("Warning", "PolicyRejected", 1)
    assert first["involvedObject"]["name"] == "policy"
    method, _, other = await board.next()
    assert (method, other["message"]) == ("POST", "worse")
    posting.post(ABOUT, warning=True, reason="PolicyRejected", message="bad")
    board.now += dt.timedelta(seconds=10)
    assert await board.next() == (
        "PATCH",
        f"{path}/{first['metadata']['name']}",
        {"count": 2, "lastTimestamp": "2026-11-21T00:00:10Z"},
    )


async def test_an_event_that_another_replica_has_posted_is_counted(board, posting):
    board.statuses = [409]
    posting.post(ABOUT, warning=True, reason="PolicyRejected", message="bad")
    _, path, first = await board.next()
    method, patched, change = await board.next()
    assert (method, patched) == ("PATCH", f"{path}/{first['metadata']['name']}")
    assert change["count"] == 2


async def test_a_deleted_event_is_posted_again_with_its_count(board, posting):
    posting.post(ABOUT, warning=True, reason="R", message="m")
    first = (await board.next())[2]
    board.statuses = [404]
    board.now += dt.timedelta(seconds=10)
    posting.post(ABOUT, warning=True, reason="R", message="m")
    assert (await board.next())[0] == "PATCH"
    method, _, again = await board.next()
    assert (method, again["count"]) == ("POST", 2)
    assert again["metadata"]["name"] == first["metadata"]["name"]


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
async def test_an_event_about_an_unchecked_reference_is_not_sent(board, posting, about):
    posting.post(msgspec.structs.replace(ABOUT, **about), warning=True, reason="R", message="forged")
    posting.post(ABOUT, warning=True, reason="R", message="honest")
    assert (await board.next())[2]["message"] == "honest"
    assert board.became[events.DROPPED] == 1


async def test_an_owner_with_an_odd_name_gets_an_event(board, posting):
    posting.post(msgspec.structs.replace(ABOUT, name="Odd/Name\n-"), warning=True, reason="R", message="m")
    event = (await board.next())[2]
    assert event["metadata"]["name"].startswith("railwright.")
    assert event["involvedObject"]["name"] == "Odd/Name\n-"


async def test_a_refused_event_and_many_events_delay_no_client(board, posting):
    board.status = 403
    posting.post(ABOUT, warning=True, reason="R", message="refused")
    await board.next()
    board.status = 201
    for number in range(3 * events.QUEUE):
        posting.post(ABOUT, warning=True, reason="R", message=f"m{number}" + "x" * 5000)
    method, _, event = await board.next()
    assert method == "POST"
    assert len(event["message"]) == 1024
    assert board.became[events.FAILED] == 1
    assert board.became[events.DROPPED] == 2 * events.QUEUE
