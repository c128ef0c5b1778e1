"""The status of the FabricPolicy: each replica writes only what is missing."""

import asyncio
import contextlib
import datetime as dt
import json

import api_stub
import msgspec
import pytest
import shell
from aiohttp import web

from railwright.cluster import client as clients
from railwright.cluster import policies, sources
from railwright.fabric import views
from webhook import policy_status

GOOD = {"fabrics": {"f": {"transport": "tcp"}}}
BAD = {"fabrics": {"f": {"transport": "tpc"}}, "colour": "red"}
PATH = "/apis/railwright.io/v1alpha1/namespaces/railwright-system/fabricpolicies/railwright-policy/status"


class Stored:
    """The resource on an API server, and the replicas that watch it."""

    def __init__(self) -> None:
        self.object: dict = {}
        self.writes: list[dict] = []
        self.refusals: list[int] = []  # statuses of the next answers
        self.replicas: list[sources.PolicyObjects] = []

    def put(self, spec: dict, generation: int) -> None:
        metadata = {"name": "railwright-policy", "uid": "u", "generation": generation}
        self._store({**self.object, "metadata": metadata, "spec": spec})

    def _store(self, obj: dict) -> None:
        version = int(self.object.get("metadata", {}).get("resourceVersion", "0")) + 1
        self.object = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        for replica in self.replicas:
            replica.resource.upsert(self.read())

    def read(self) -> views.FabricPolicy:
        return msgspec.convert(self.object, views.FabricPolicy)

    async def answer(self, request: web.Request) -> web.Response:
        assert (request.method, request.path) == ("PATCH", PATH)
        assert request.content_type == "application/merge-patch+json"
        if self.refusals:
            return web.json_response(api_stub.status(self.refusals[0]), status=self.refusals.pop(0))
        change = json.loads(await request.read())
        if change["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"]:
            return web.json_response(api_stub.status(409), status=409)
        self.writes.append(change["status"])
        self._store({**self.object, "status": change["status"]})
        return web.json_response(self.object)


@pytest.fixture
async def stored():
    made = Stored()
    async with api_stub.serve(made.answer) as made.port:
        yield made


@contextlib.asynccontextmanager
async def replicas(stored: Stored, folder, count: int, now: str = "2026-11-23T01:00:00+00:00"):
    """Running writers of as many replicas."""
    client = await clients.connect(api_stub.kubeconfig(folder, stored.port))
    stores = [policies.PolicyStore() for _ in range(count)]
    stored.replicas = [sources.PolicyObjects(store, is_resource_watched=True) for store in stores]
    writers = [
        policy_status.PolicyStatus(client, objects, now=lambda: dt.datetime.fromisoformat(now), spread_seconds=0.05)
        for objects in stored.replicas
    ]
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    for objects in stored.replicas:
        objects.resource.replace([stored.read()] if stored.object else [])
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


async def wait_for_writes(stored: Stored, count: int) -> dict:
    """Wait for this number of writes, and check that no other follows. Return the last one."""
    await shell.until(lambda: len(stored.writes) >= count)
    await asyncio.sleep(0.3)
    assert len(stored.writes) == count
    return stored.writes[-1]


async def test_one_of_three_replicas_writes_the_status(stored, tmp_path):
    async with replicas(stored, tmp_path, 3):
        stored.put(GOOD, 1)
        status = await wait_for_writes(stored, 1)
    assert status["digest"].startswith("sha256:")
    assert status["observedGeneration"] == 1
    assert status["conditions"] == [
        {
            "type": "Accepted",
            "status": "True",
            "reason": "Valid",
            "message": "the policy is in force",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-23T01:00:00Z",
        }
    ]


async def test_an_invalid_policy_has_all_errors_in_its_status(stored, tmp_path):
    async with replicas(stored, tmp_path, 1):
        stored.put(GOOD, 1)
        digest = (await wait_for_writes(stored, 1))["digest"]
        stored.put(BAD, 2)
        status = await wait_for_writes(stored, 2)
    (condition,) = status["conditions"]
    assert (status["digest"], status["observedGeneration"], condition["status"]) == (digest, 2, "False")
    assert "spec.colour: " in condition["message"]
    assert "spec.fabrics.f.transport: " in condition["message"]


async def test_a_restarted_replica_keeps_the_transition_time(stored, tmp_path):
    stored.put(GOOD, 1)
    async with replicas(stored, tmp_path, 1):
        before = await wait_for_writes(stored, 1)
    async with replicas(stored, tmp_path, 1, "2026-11-24T01:00:00+00:00"):
        await wait_for_writes(stored, 1)
        stored.put({**GOOD, "defaultFabric": "f"}, 2)
        after = await wait_for_writes(stored, 2)
    assert after["digest"] != before["digest"]
    assert after["conditions"][0]["lastTransitionTime"] == "2026-11-23T01:00:00Z"


async def test_a_refused_write_is_repeated(stored, tmp_path):
    stored.refusals = [409, 500, 403]
    async with replicas(stored, tmp_path, 1):
        stored.put(GOOD, 1)
        await wait_for_writes(stored, 1)


async def test_a_status_of_another_version_stays(stored, tmp_path):
    async with replicas(stored, tmp_path, 1):
        stored.put(GOOD, 1)
        await wait_for_writes(stored, 1)
        stored._store({**stored.object, "status": {"observedGeneration": 1, "digest": "sha256:other"}})
        await wait_for_writes(stored, 1)
