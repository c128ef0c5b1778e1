"""Which APIs the API server serves."""

import asyncio

import pytest

from railwright.cluster import errors, sources

SERVED = "scheduling.k8s.io/v1beta1"


class Client:
    """An API server that answers each GET with the next of these statuses, and at last with 200."""

    def __init__(self, *statuses):
        self.statuses, self.paths = list(statuses), []

    async def get(self, path):
        self.paths.append(path)
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            raise errors.ApiError(errors.ErrorResponse(status, "", "", path), "")
        return b"{}"


async def test_an_api_that_is_not_served_is_left_out():
    client = Client(404)
    assert await sources.find_served(client, [SERVED, "x/v1"]) == {"x/v1"}
    assert client.paths == [f"/apis/{SERVED}", "/apis/x/v1"]


async def test_any_other_error_is_no_answer():
    with pytest.raises(errors.ApiError):
        await sources.find_served(Client(500), [SERVED])


async def test_a_failed_answer_changes_nothing_and_is_tried_again(monkeypatch):
    monkeypatch.setattr(sources, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(sources, "_IDLE_SECONDS", 0)
    asked, reports, client = [(), (SERVED,), (SERVED,)], [], Client(500)
    done = asyncio.Event()

    def report(served):
        reports.append(served)
        done.set()

    task = asyncio.create_task(sources.keep_asking(client, lambda: asked.pop(0), report))
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()
    assert reports == [{SERVED}]
    assert len(client.paths) == 2, "nothing is asked until a policy needs it"
