"""The last valid policy survives a restart of all replicas."""

import asyncio
import json

import pytest

from railwright.cluster import errors, last_policy, policies, sources
from railwright.fabric import views

GOOD = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
BAD = GOOD.replace("tcp", "tpc")


class ApiServer:
    """The ConfigMap with the copy, None without one."""

    def __init__(self, text: str = "") -> None:
        self.copy: dict | None = {"data": {"policy.yaml": text} if text else None}
        self.written: list[str] = []

    async def get(self, path: str) -> bytes:
        if self.copy is None:
            raise errors.ApiError(404, "NotFound", "", path)
        return json.dumps(self.copy).encode()

    async def patch(self, path: str, body: dict, content_type: str) -> bytes:
        assert (path.rpartition("/")[2], content_type) == ("railwright-last-policy", "application/merge-patch+json")
        self.copy = body
        self.written.append(body["data"]["policy.yaml"])
        return b"{}"


class Server:
    """A server that watches the policy."""

    def __init__(self, cluster: ApiServer, *, writes: bool = True) -> None:
        self.store = policies.PolicyStore()
        self.watched = sources.PolicyConfigMap(self.store)
        self.last = last_policy.LastPolicy(cluster, self.store, self.watched, writes=writes)

    async def see(self, text: str | None) -> None:
        """Show it a version of the policy, and let it follow."""
        metadata = views.ObjectMeta(name="railwright-policy")
        self.watched.replace([] if text is None else [views.ConfigMap(metadata=metadata, data={"policy.yaml": text})])
        task = asyncio.create_task(self.last.run())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()


async def test_a_server_that_starts_with_an_invalid_policy_uses_the_last_valid_one():
    server = Server(ApiServer(GOOD), writes=False)
    await server.see(BAD)
    assert server.store.current.digest == policies.read(GOOD).digest
    assert not server.store.valid
    assert "f.transport" in str(server.store.errors[0]), "what is wrong is still told"
    other = GOOD.replace("f:", "g:")
    await server.see(other)
    assert (server.store.current.digest, server.store.valid) == (policies.read(other).digest, True)


@pytest.mark.parametrize("text", [None, GOOD])
async def test_the_copy_is_not_used_for_a_policy_that_was_deleted_or_is_valid(text):
    server = Server(ApiServer(GOOD.replace("f:", "old:")))
    await server.see(text)
    assert server.store.current is None if text is None else "f" in server.store.current.document.fabrics


async def test_each_valid_policy_is_kept_and_no_other():
    cluster, other = ApiServer(), GOOD.replace("f:", "g:")
    await Server(cluster).see(GOOD)
    await Server(cluster).see(GOOD)
    await Server(cluster).see(BAD)
    await Server(cluster, writes=False).see(other)
    assert cluster.written == [GOOD]
    await Server(cluster).see(other)
    assert cluster.written == [GOOD, other]


async def test_a_copy_that_cannot_be_used_is_logged(caplog):
    await Server(ApiServer(BAD)).see(BAD)
    (entry,) = caplog.records
    assert (entry.levelname, entry.message) == ("WARNING", "the copy of the last valid policy is invalid and not used")
    assert "f.transport" in entry.fields["errors"][0]


async def test_an_installation_without_the_copy_keeps_nothing():
    cluster = ApiServer()
    cluster.copy = None
    server = Server(cluster)
    await server.see(GOOD)
    assert server.store.valid
    assert cluster.written == []
