"""A watch against an API server that misbehaves, over real sockets: the cache is right in the end, every time."""

import asyncio
import json
import logging
from collections import deque

import api_stub
import pytest
import pytest_asyncio
from aiohttp import web

from cluster import client as clients
from cluster import errors, reflector, resources


def node(name: str, version: int = 1, **labels: str) -> dict:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    return {"metadata": metadata, "status": {}}


def listing(*items: dict, version: int, more: str = "") -> dict:
    return {"items": list(items), "metadata": {"resourceVersion": str(version), "continue": more}}


def event(kind: str, obj: dict) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def status(code: int, message: str = "no") -> dict:
    return {"kind": "Status", "code": code, "reason": "Because", "message": message}


class Stub:
    """An API server that plays a script: one answer a request, the last one again and again."""

    def __init__(self) -> None:
        self.lists: deque = deque()
        self.watches: deque = deque()
        self.asked: list[web.Request] = []
        self.hold = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        script = self.watches if "watch" in request.query else self.lists
        given = script.popleft() if len(script) > 1 else script[0]
        if isinstance(given, web.Response):
            return web.Response(body=given.body, status=given.status, headers=given.headers)
        if isinstance(given, dict):
            code = given.get("code", 200)
            return web.json_response(given, status=code)
        response = web.StreamResponse()
        await response.prepare(request)
        for part in given:
            if part is None:
                await self.hold.wait()
            else:
                await response.write(part)
        return response

    def watched_from(self) -> list[str]:
        return [request.query["resourceVersion"] for request in self.asked if "watch" in request.query]


class Cache:
    """A sink that remembers, and tells when something has happened."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.replaced = 0
        self.changed = asyncio.Condition()

    def replace(self, objects) -> None:
        self.replaced += 1
        self.objects = {each.metadata.name: each for each in objects}
        self._tell()

    def upsert(self, obj) -> None:
        self.objects[obj.metadata.name] = obj
        self._tell()

    def remove(self, obj) -> None:
        self.objects.pop(obj.metadata.name, None)
        self._tell()

    def _tell(self) -> None:
        async def notify():
            async with self.changed:
                self.changed.notify_all()

        self.telling = asyncio.ensure_future(notify())

    async def until(self, condition) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(condition)


@pytest_asyncio.fixture(loop_scope="session")
async def stub():
    made = Stub()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    made.hold.set()
    await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="session")
async def client(stub, tmp_path):
    made = await clients.connect(api_stub.kubeconfig(tmp_path, stub.port))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def watch(client):
    """`await watch(kind)`: a running reflector over a fresh cache, with short pauses."""
    running = []

    def start(kind=resources.NODES, **options):
        cache, restarts = Cache(), []
        made = reflector.Reflector(
            client,
            kind,
            cache,
            restarted=lambda _, reason: restarts.append(reason),
            **{"longest_pause_seconds": 0.05, "absent_seconds": 0.05, **options},
        )
        running.append(asyncio.create_task(made.run()))
        return made, cache, restarts

    yield start
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_list_and_its_events_make_the_cache(stub, watch):
    stub.lists.append(listing(node("a"), node("b"), version=5))
    changes = [event("ADDED", node("c", 6)), event("MODIFIED", node("a", 7, x="1")), event("DELETED", node("b", 8))]
    stub.watches.append([*changes, None])
    source, cache, _ = watch()
    await cache.until(lambda: set(cache.objects) == {"a", "c"})
    assert cache.objects["a"].metadata.labels == {"x": "1"}
    assert source.synced.is_set()
    assert source.objects == 2
    assert stub.watched_from() == ["5"]
    assert stub.asked[0].headers["Authorization"] == "Bearer s3cret"


async def test_pages_are_given_to_the_cache_all_at_once(stub, watch):
    stub.lists.extend([listing(node("a"), version=5, more="next"), listing(node("b"), version=5)])
    stub.watches.append([None])
    _, cache, _ = watch()
    await cache.until(lambda: set(cache.objects) == {"a", "b"})
    assert cache.replaced == 1
    assert stub.asked[1].query["continue"] == "next"


async def test_a_continue_token_that_expired_begins_the_list_anew(stub, watch):
    stub.lists.extend([listing(node("a"), version=5, more="old"), status(410), listing(node("z"), version=9)])
    stub.watches.append([None])
    _, cache, _ = watch()
    await cache.until(lambda: set(cache.objects) == {"z"})


async def test_a_stream_that_ends_is_resumed_without_a_list(stub, watch):
    stub.lists.append(listing(node("a"), version=5))
    stub.watches.extend([[event("ADDED", node("b", 6)), bookmark(9)], [event("ADDED", node("c", 10)), None]])
    _, cache, _ = watch()
    await cache.until(lambda: "c" in cache.objects)
    assert cache.replaced == 1
    assert stub.watched_from() == ["5", "9"]


@pytest.mark.parametrize("gone", [status(410), [event("ERROR", status(410))]], ids=["as status", "in the stream"])
async def test_410_lists_anew_and_notices_deletions(stub, watch, gone):
    stub.lists.extend([listing(node("a"), node("b"), version=5), listing(node("b"), version=20)])
    stub.watches.extend([gone, [None]])
    _, cache, restarts = watch()
    await cache.until(lambda: set(cache.objects) == {"b"})
    assert "gone" in restarts


async def test_another_error_in_the_stream_keeps_the_cache_until_the_next_list(stub, watch):
    stub.lists.extend([listing(node("a"), version=5), status(500), listing(node("b"), version=9)])
    stub.watches.extend([[event("ERROR", status(500))], [None]])
    _, cache, restarts = watch()
    await cache.until(lambda: "a" in cache.objects)
    await cache.until(lambda: set(cache.objects) == {"b"})
    assert restarts[:2] == ["500", "500"]


async def test_a_line_cut_in_the_middle_is_dropped_and_the_rest_resumed(stub, watch):
    whole = event("ADDED", node("c", 8))
    stub.lists.append(listing(version=5))
    stub.watches.extend([[event("ADDED", node("b", 7)), whole[:20]], [whole, None]])
    _, cache, _ = watch()
    await cache.until(lambda: set(cache.objects) == {"b", "c"})
    assert stub.watched_from() == ["5", "7"]


async def test_an_event_of_three_mebibytes_is_read(stub, watch):
    stub.lists.append(listing(version=5))
    stub.watches.append([event("ADDED", node("big", 6, x="y" * (3 << 20))), None])
    _, cache, _ = watch()
    await cache.until(lambda: "big" in cache.objects)


async def test_silence_is_a_dead_connection(stub, watch):
    stub.lists.append(listing(node("a"), version=5))
    stub.watches.extend([[None], [event("ADDED", node("b", 6)), None]])
    _, cache, restarts = watch(quiet_seconds=0.2)
    await cache.until(lambda: "b" in cache.objects)
    assert "unreachable" in restarts


async def test_an_absent_crd_means_no_objects_until_it_comes(stub, watch):
    stub.lists.extend([status(404), listing(node("net"), version=3)])
    stub.watches.append([None])
    source, cache, _ = watch(resources.NADS)
    await asyncio.wait_for(source.synced.wait(), 10)
    await cache.until(lambda: set(cache.objects) == {"net"})


async def test_a_missing_right_is_told_once_with_its_fix_and_the_cache_is_not_synced(stub, watch, caplog):
    stub.lists.append(status(403, "nodes is forbidden"))
    with caplog.at_level(logging.WARNING, logger="railwright.cluster"):
        source, _, restarts = watch()
        async with asyncio.timeout(10):
            while len(restarts) < 3:  # noqa: ASYNC110 - a plain list tells nobody that it grew
                await asyncio.sleep(0.01)  # between two looks
    assert not source.synced.is_set()
    told = [record.fields for record in caplog.records if record.name == "railwright.cluster"]
    assert len(told) == 1
    assert "nodes is forbidden" in told[0]["error"]
    assert "list and watch on nodes" in told[0]["fix"]


async def test_credentials_the_server_no_longer_takes_are_read_anew(stub, watch, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    old = kubeconfig.read_text()
    kubeconfig.write_text("torn")  # being replaced: not usable yet, and no reason to end
    stub.lists.extend([status(401), status(401), listing(node("a"), version=5)])
    stub.watches.append([None])
    _, cache, restarts = watch()
    async with asyncio.timeout(10):
        while "credentials" not in restarts:  # noqa: ASYNC110 - a plain list tells nobody that it grew
            await asyncio.sleep(0.01)
    kubeconfig.write_text(old.replace("s3cret", "newer"))
    await cache.until(lambda: "a" in cache.objects)


async def test_a_server_that_hangs_up_at_once_is_not_asked_in_a_tight_loop(stub, watch):
    stub.lists.append(listing(version=5))
    stub.watches.append([])
    _, cache, _ = watch(longest_pause_seconds=1.0)
    await cache.until(lambda: cache.replaced == 1)
    await asyncio.sleep(0.5)  # what is measured is how much happens in it
    assert len(stub.watched_from()) < 10


async def test_the_policy_is_watched_by_its_name_only(stub, watch):
    stub.lists.append(listing(version=5))
    stub.watches.append([None])
    source, _, _ = watch(resources.POLICY)
    await asyncio.wait_for(source.synced.wait(), 10)
    assert stub.asked[0].query["fieldSelector"] == "metadata.name=railwright-policy"


async def test_an_error_names_path_status_and_the_servers_words(stub, client):
    stub.lists.append(status(403, "pods is forbidden: nobody"))
    with pytest.raises(errors.ApiError, match=r"/api/v1/pods: 403 Because: pods is forbidden: nobody"):
        await client.get("/api/v1/pods")


async def test_a_server_that_is_not_there_is_unreachable_and_said_so(stub, client):
    client._account.host = "http://127.0.0.1:1"
    with pytest.raises(errors.UnreachableError, match=r"/api/v1/pods"):
        await client.get("/api/v1/pods")


async def test_a_kubeconfig_that_is_not_one_is_named(tmp_path):
    path = tmp_path / "none"
    with pytest.raises(errors.ConfigurationError, match="none"):
        await clients.connect(str(path))
