"""The status of the FabricPolicy: each replica writes only what is missing."""

import asyncio
import contextlib
import datetime as dt

import api_stub
import msgspec
import objects_stub
import pytest
import shell

from railwright.cluster import client as clients
from railwright.cluster import policies, sources
from railwright.fabric import views
from webhook import policy_status

GOOD = {"fabrics": {"f": {"transport": "tcp"}}}
BAD = {"fabrics": {"f": {"transport": "tpc"}}, "colour": "red"}
PATH = "/apis/railwright.io/v1alpha1/namespaces/railwright-system/fabricpolicies/railwright-policy"


class Stored(objects_stub.Objects):
    """The resource on an API server, and the replicas that watch it."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: list[sources.PolicyObjects] = []

    def put(self, spec: dict, generation: int) -> None:
        metadata = {"name": "railwright-policy", "uid": "u", "generation": generation}
        self.keep(PATH, {**self.stored.get(PATH, {}), "metadata": metadata, "spec": spec})

    def keep(self, path: str, thing: dict) -> dict:
        stored = super().keep(path, thing)
        for replica in self.replicas:
            replica.resource.upsert(self.read())
        return stored

    def read(self) -> views.FabricPolicy:
        return msgspec.convert(self.stored[PATH], views.FabricPolicy)


@pytest.fixture
async def stored():
    async with objects_stub.serving(Stored()) as made:
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
        objects.resource.replace([stored.read()] if PATH in stored.stored else [])
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()


async def wait_for_writes(stored: Stored, count: int) -> dict:
    """Wait for this number of writes, and check that no other follows. Return the last one."""
    await shell.until(lambda: len(stored.changes) >= count)
    await asyncio.sleep(0.3)
    assert stored.changes == [f"PATCH {PATH}/status"] * count
    return stored.stored[PATH]["status"]


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
    stored.refuse_next(409, 500, 403, method="PATCH")
    async with replicas(stored, tmp_path, 1):
        stored.put(GOOD, 1)
        await wait_for_writes(stored, 1)


async def test_a_status_of_another_version_stays(stored, tmp_path):
    async with replicas(stored, tmp_path, 1):
        stored.put(GOOD, 1)
        await wait_for_writes(stored, 1)
        stored.keep(PATH, {**stored.stored[PATH], "status": {"observedGeneration": 1, "digest": "sha256:other"}})
        await wait_for_writes(stored, 1)
