"""Pages of a list: the next one is on its way while the caller processes one."""

import asyncio
import contextlib

import msgspec
import pytest

from railwright.cluster import resources, watch_wire

PAGE = b'{"metadata":{"resourceVersion":"5","continue":"%b"},"items":[]}'


class Pages:
    """Serves two pages, and answers a request for one only when the test allows it."""

    host = "http://127.0.0.1"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled = 0
        self.let = asyncio.Event()

    async def get(self, _: str, query: dict[str, str]) -> bytes:
        self.asked.append(query.get("continue", ""))
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return PAGE % (b"" if "continue" in query else b"second")


async def test_the_next_page_is_requested_while_one_is_processed():
    client = Pages()
    client.let.set()
    async with contextlib.aclosing(watch_wire.read_pages(client, "/nodes", {})) as pages:
        await anext(pages)
        await asyncio.sleep(0)
        assert client.asked == ["", "second"]
        assert (await anext(pages)).metadata == watch_wire.ListMeta(resource_version="5")
        with pytest.raises(StopAsyncIteration):
            await anext(pages)
    assert client.asked == ["", "second"]


async def test_leaving_early_cancels_the_request_for_the_next_page():
    client = Pages()
    client.let.set()
    async with contextlib.aclosing(watch_wire.read_pages(client, "/nodes", {})) as pages:
        await anext(pages)
        client.let.clear()
        await asyncio.sleep(0)
    assert (client.asked, client.cancelled) == (["", "second"], 1)


@pytest.mark.parametrize("kind", [kind for kind in vars(resources).values() if isinstance(kind, resources.Kind)])
def test_a_view_has_the_identity_of_its_object(kind):
    """The first list is read by its view only, and later ones are compared with what that gave."""
    raw = b'{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}'
    meta = msgspec.json.decode(raw, type=kind.view).metadata
    identity = watch_wire.decode_identified(raw).metadata
    assert (meta.namespace, meta.name, meta.uid, meta.resource_version) == msgspec.structs.astuple(identity)
