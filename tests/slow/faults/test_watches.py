"""Faults of connections to the API server: streams that are cut, fall silent or do not open; over real sockets."""

import pathlib
import time

import admitting
import api_stub
import pytest
import shell
from api_stub import event, listing, node, status
from proxy import Proxy

from railwright.cluster import reflector

POLICY = pathlib.Path(__file__).parents[3] / "manifests" / "examples" / "360-roce" / "policy.yaml"


async def test_07_without_an_api_server_only_the_webhook_stays_ready(stub, tmp_path, started):
    stub.lists.append(listing(version=5))
    stub.watches.append([None])
    options = ("--plain-http", "--kubeconfig", api_stub.kubeconfig(tmp_path, stub.port), "--policy", str(POLICY))
    webhook = await started("webhook", *options)
    extender = await started("extender", *options, "--stale-seconds=2")

    async def find_refusal() -> str:
        answer = await extender.ops("/readyz")
        return "" if answer.status == 200 else answer.body.decode()

    assert "no contact with the API server for too long" in await shell.until(find_refusal)
    assert (await webhook.ops("/readyz")).status == 200
    caller = await webhook.open()
    answer = await caller.ask(admitting.review(admitting.pod(), namespace="prod"), path="/mutate/pods?timeout=5s")
    assert answer.status == 200
    await caller.close()
    stub.hold.set()  # each watch ends, and the next one is answered
    await extender.ready()


async def test_13_a_half_open_watch_connection_is_closed_when_no_data_arrives(stub, client, watch):
    assert 60 < reflector.Reflector.quiet_seconds <= 75, "bookmarks come each 60 s; a watch cache keeps events for 75 s"
    stub.lists.append(listing(node("a"), version=5))
    stub.watches.append([event("ADDED", node("b", 6)), None])
    connected = time.monotonic()
    async with Proxy(stub.port) as proxy:
        client._access.configuration.host = f"http://127.0.0.1:{proxy.port}"
        source, cache, restarts = watch(quiet_seconds=0.5)
        await shell.until(lambda: "b" in cache.objects)
        proxy.silent = True
        stub.watches[0] = [event("ADDED", node("c", 7)), None]
        began = time.monotonic()
        await shell.until(lambda: "unreachable" in restarts)
        noticed = time.monotonic() - began
        assert time.monotonic() - connected > 0.5
        proxy.silent = False
        await shell.until(lambda: "c" in cache.objects)
        assert noticed < 10
        assert cache.replaced == 1
        assert stub.watched_from()[-1] == "6"
        await shell.until(lambda: source.get_age_seconds() < 1)


async def test_14_an_incomplete_watch_line_is_dropped(stub, watch):
    whole = event("ADDED", node("c", 8))
    stub.lists.append(listing(version=5))
    cuts = [1, 20, len(whole) // 2, len(whole) - 2]
    stub.watches.extend([[event("ADDED", node("b", 7)), whole[: cuts[0]]], *([whole[:cut]] for cut in cuts[1:])])
    stub.watches.append([whole, None])
    _, cache, restarts = watch()
    await shell.until(lambda: set(cache.objects) == {"b", "c"})
    assert stub.watched_from() == ["5", "7", "7", "7", "7"]
    assert (cache.replaced, cache.changes) == (1, ["+b", "+c"])
    assert "unread" not in restarts


async def test_15_an_event_of_three_mebibytes_is_read(stub, watch):
    stub.lists.append(listing(version=5))
    large = event("ADDED", node("big", 6, x="y" * (3 << 20)))
    stub.watches.append([large, event("ADDED", node("next", 7)), None])
    _, cache, restarts = watch()
    await shell.until(lambda: "next" in cache.objects)
    assert len(cache.objects["big"].metadata.labels["x"]) == 3 << 20
    assert (cache.replaced, restarts) == (1, [])


@pytest.mark.parametrize("code", [429, 503])
async def test_16_requests_to_a_busy_api_server_are_repeated(stub, watch, code):
    stub.lists.extend([status(code, "busy"), listing(node("a"), version=5)])
    stub.watches.append([None])
    _, cache, restarts = watch()
    await shell.until(lambda: "a" in cache.objects)
    assert restarts == [str(code)]
