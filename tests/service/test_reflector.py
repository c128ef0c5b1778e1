"""A watch of a faulty API server, over real sockets: the cache is always correct in the end.

The faults of docs/evidence/status.md are tested by their numbers in tests/slow/faults.
"""

import asyncio
import json
import logging

import pytest
import shell
from aiohttp import web
from api_stub import bookmark, connected, event, listing, node, status

from railwright.cluster import client as clients
from railwright.cluster import errors, reflector, resources


async def test_the_cache_follows_the_list_and_its_events(stub, watch):
    stub.lists.append(listing(node("a"), node("b"), version=5))
    changes = [event("ADDED", node("c", 6)), event("MODIFIED", node("a", 7, x="1")), event("DELETED", node("b", 8))]
    stub.watches.append([*changes, None])
    source, cache, _ = watch()
    await shell.until(lambda: set(cache.objects) == {"a", "c"})
    assert cache.objects["a"].metadata.labels == {"x": "1"}
    assert source.synced.is_set()
    assert source.object_count == 2
    assert stub.watched_from() == ["5"]
    assert stub.asked[0].headers["Authorization"] == "Bearer s3cret"


async def test_the_pages_of_a_list_are_put_into_the_cache_together(stub, watch):
    stub.lists.extend([listing(node("a"), version=5, more="next"), listing(node("b"), version=5)])
    stub.watches.append([None])
    _, cache, _ = watch()
    await shell.until(lambda: set(cache.objects) == {"a", "b"})
    assert cache.replaced == 1
    assert stub.asked[1].query["continue"] == "next"


async def test_objects_deleted_between_lists_are_removed(stub, watch):
    stub.lists.append(listing(node("a"), node("b"), node("c"), version=5))
    stub.lists.append(listing(node("a"), node("b"), version=8, more="old"))
    stub.lists.extend([status(410), listing(node("a"), node("c"), version=9)])
    stub.watches.extend([status(410), [None]])
    source, cache, _ = watch()
    await shell.until(lambda: "9" in stub.watched_from())
    assert (set(cache.objects), source.object_count) == ({"a", "c"}, 2)


async def test_a_silent_watch_is_resumed_from_the_last_version(stub, watch):
    stub.lists.append(listing(node("a"), version=5))
    stub.watches.append([bookmark(7), None])
    source, cache, restarts = watch(quiet_seconds=1.5)  # a request without an answer for this time is a failure
    await shell.until(lambda: stub.watched_from().count("7") >= 2)
    assert stub.watched_from() == sorted(stub.watched_from()), "never from before what was heard"
    assert (cache.replaced, set(restarts)) == (1, {"unreachable"})
    await shell.until(lambda: source.get_age_seconds() < 1)


async def test_a_kind_without_its_crd_has_no_objects_until_the_crd_exists(stub, watch):
    stub.lists.extend([status(404), listing(node("net"), version=3)])
    stub.watches.append([None])
    source, cache, _ = watch(resources.NADS)
    await asyncio.wait_for(source.synced.wait(), shell.PATIENCE)
    await shell.until(lambda: set(cache.objects) == {"net"})


async def test_a_missing_right_is_reported_once_with_its_fix(stub, watch, caplog):
    stub.lists.append(status(403, "nodes is forbidden"))
    with caplog.at_level(logging.WARNING, logger="railwright.cluster"):
        source, _, restarts = watch()
        await shell.until(lambda: len(restarts) >= 3)
    assert not source.synced.is_set()
    fields = [record.fields for record in caplog.records if record.name == "railwright.cluster"]
    assert len(fields) == 1
    assert "nodes is forbidden" in fields[0]["error"]
    assert "you may not list nodes" in fields[0]["fix"]


FAILURES = {
    "closed": [],
    "unreadable": [event("ADDED", {"metadata": 5})],
    "403": [event("ERROR", status(403, "broken"))],
    "500": [event("ERROR", status(500, "broken"))],
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_watch_that_fails_keeps_the_cache_and_is_tried_again_with_growing_pauses(stub, watch, caplog, failure):
    stub.lists.append(listing(node("a"), version=5))
    stub.watches.append(FAILURES[failure])
    with caplog.at_level(logging.WARNING, logger="railwright.cluster"):
        _, cache, restarts = watch(longest_pause_seconds=1.0)
        await shell.until(lambda: cache.replaced == 1)
        await asyncio.sleep(1.0)  # the number of retries in this second is checked below
    assert len(stub.watched_from()) < 10
    assert set(cache.objects) == {"a"}
    alarms = [record.fields for record in caplog.records if "broken" in record.fields.get("error", "")]
    if failure.isdigit():
        assert set(restarts) == {failure}
        assert [bool(alarm["fix"]) for alarm in alarms] == [True], "logged once, with its fix"


async def test_a_watch_line_without_an_end_is_handled_as_a_lost_connection(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "_LINE", 1000)
    stub.watches.append([b"x" * 3000, None])
    async with connected(tmp_path, stub.port) as client:
        with pytest.raises(errors.UnreachableError, match="more than 2000 bytes"):
            await anext(client.stream_lines("/api/v1/nodes", {"watch": "true", "resourceVersion": "5"}, shell.PATIENCE))


async def test_an_unreadable_object_is_left_out_and_counted(stub, watch, caplog):
    odd = node("odd", 3) | {"status": {"allocatable": "plenty"}}
    stub.lists.append(listing(node("a"), odd, node("b"), version=5))
    stub.watches.append([event("ADDED", odd), event("MODIFIED", node("a", 6, x="1")), None])
    with caplog.at_level(logging.WARNING, logger="railwright.cluster"):
        source, cache, restarts = watch()
        await shell.until(lambda: cache.objects.keys() == {"a", "b"} and cache.objects["a"].metadata.labels)
    assert source.synced.is_set()
    assert (source.object_count, restarts) == (2, ["skipped", "skipped"])
    (field,) = [record.fields for record in caplog.records if record.name == "railwright.cluster"]
    assert field["object"] == "odd"
    assert "allocatable" in field["error"]


@pytest.mark.parametrize("answer", [status(410), [event("ERROR", status(410))]], ids=["request", "stream"])
async def test_a_list_after_410_updates_only_objects_that_differ_from_those_in_the_cache(stub, watch, answer):
    stub.lists.extend(
        [
            listing(node("same", 1), node("changed", 2), node("gone", 3), node("again", 4), version=5),
            listing(node("same", 1), node("changed", 7), node("new", 8), node("again", 9, uid="other"), version=9),
        ]
    )
    stub.watches.extend([answer, [None]])
    source, cache, _ = watch()
    await shell.until(lambda: "new" in cache.objects and "gone" not in cache.objects)
    assert cache.changes == ["+changed", "+new", "-again", "+again", "-gone"]
    assert (cache.replaced, source.object_count) == (1, 4)


def deep(name: str, version: int, levels: int) -> bytes:
    """Return a node with an unread field, nested deeper than msgspec allows on any Python."""
    return (
        json.dumps(node(name, version)).encode()[:-1] + b',"deep":' + b'{"a":[' * levels + b"1" + b"]}" * levels + b"}"
    )


async def test_a_deeply_nested_object_does_not_hide_other_objects(stub, watch):
    items = b",".join([json.dumps(node("a", 3)).encode(), deep("b", 4, 6000), json.dumps(node("c", 5)).encode()])
    page = b'{"metadata":{"resourceVersion":"5"},"items":[' + items + b"]}"
    stub.lists.append(web.Response(body=page, content_type="application/json"))
    changed = b'{"type":"MODIFIED","object":' + deep("b", 6, 6000) + b"}\n"
    stub.watches.append([changed, event("ADDED", node("d", 7)), None])
    _, cache, restarts = watch()
    await shell.until(lambda: "d" in cache.objects)
    assert set(cache.objects) == {"a", "b", "c", "d"}
    assert (cache.replaced, restarts) == (1, [])


async def test_a_gradual_sink_gets_the_first_list_object_by_object(stub, watch):
    first = listing(node("a"), node("gone"), version=5, more="next")
    stub.lists.extend([first, status(410), listing(node("a"), node("b"), version=6)])
    stub.watches.append([None])
    source, cache, restarts = watch(gradual=True)
    await asyncio.wait_for(source.synced.wait(), shell.PATIENCE)
    assert cache.changes == ["+a", "+gone", "+b", "-gone"]
    assert (cache.replaced, source.object_count, restarts) == (0, 2, ["gone"])


async def most_between_turns(cache, expected: int) -> int:
    """Return the largest number of objects that the cache gets between two turns of the loop."""
    seen, most = 0, 0
    while len(cache.changes) < expected:
        await asyncio.sleep(0)
        seen, most = len(cache.changes), max(most, len(cache.changes) - seen)
    return most


async def test_requests_are_answered_between_the_objects_of_a_list(stub, watch):
    crowd = [node(f"n{number}", 2) for number in range(300)]
    stub.lists.extend([listing(version=1), listing(*crowd, version=5), listing(version=9)])
    stub.watches.extend([status(410), status(410), [None]])
    _, cache, _ = watch()
    assert 0 < await most_between_turns(cache, 2 * len(crowd)) <= reflector.SLICE
