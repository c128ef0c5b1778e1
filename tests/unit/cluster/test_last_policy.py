"""The last valid policy survives a restart of all replicas."""

import asyncio
import json

import pytest

from railwright.cluster import errors, events, last_policy, policies
from railwright.fabric import views
from webhook import object_events

GOOD = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
BAD = GOOD.replace("tcp", "tpc")


class ApiServer:
    """The ConfigMap with the copy, None without one."""

    def __init__(self, text: str = "", version: str = "", uid: str = "u") -> None:
        stated = {"railwright.io/policy-version": version, "railwright.io/policy-uid": uid}
        annotations = stated if version else {}
        data = {"policy.yaml": text} if text else None
        self.copy: dict | None = {"metadata": {"resourceVersion": "1", "annotations": annotations}, "data": data}
        self.written: list[tuple[str, str]] = []
        self.conflicts = 0

    async def get(self, path: str) -> bytes:
        if self.copy is None:
            raise errors.ApiError(404, "NotFound", "", path)
        return json.dumps(self.copy).encode()

    async def patch(self, path: str, body: dict, content_type: str) -> bytes:
        assert (path.rpartition("/")[2], content_type) == ("railwright-last-policy", "application/merge-patch+json")
        assert body["metadata"]["resourceVersion"] == self.copy["metadata"]["resourceVersion"]
        if self.conflicts:
            self.conflicts -= 1
            raise errors.ApiError(409, "Conflict", "", path)
        self.copy = body
        self.written.append(
            (body["metadata"]["annotations"]["railwright.io/policy-version"], body["data"]["policy.yaml"])
        )
        return b"{}"


class Server:
    """A server that watches the policy."""

    def __init__(self, cluster: ApiServer, *, writes: bool = True) -> None:
        self.store = policies.PolicyStore()
        self.last = last_policy.LastPolicy(cluster, self.store, writes=writes)

    async def see(self, text: str | None, version: str = "9", uid: str = "u") -> None:
        """Pass a version of the policy to the copier, and run it."""
        metadata = views.ObjectMeta(name="railwright-policy", uid=uid, resource_version=version)
        self.store.replace([] if text is None else [views.ConfigMap(metadata=metadata, data={"policy.yaml": text})])
        task = asyncio.create_task(self.last.run())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()


async def test_a_server_that_starts_with_an_invalid_policy_uses_the_last_valid_one():
    server = Server(ApiServer(GOOD, "7"), writes=False)
    await server.see(BAD)
    assert server.store.current.digest == policies.read(GOOD).digest
    assert not server.store.valid
    assert "f.transport" in str(server.store.errors[0]), "what is wrong is still told"
    other = GOOD.replace("f:", "g:")
    await server.see(other)
    assert (server.store.current.digest, server.store.valid) == (policies.read(other).digest, True)


class Poster:
    """Collects the messages of Events."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def post(self, *_: events.Involved, message: str, **__: object) -> None:
        self.messages.append(message.partition(";")[0])


@pytest.mark.parametrize(
    ("copy", "effect"),
    [(GOOD, "the last valid policy stays in force"), (BAD, "there is no policy in force")],
)
async def test_after_a_restart_an_invalid_policy_has_one_event_which_says_what_is_in_force(copy, effect):
    server, poster = Server(ApiServer(copy, "7")), Poster()
    object_events.PolicyEvents(poster, server.store)
    await server.see(BAD)
    assert poster.messages == [effect]


@pytest.mark.parametrize("status", [404, 403])
async def test_without_a_copy_that_can_be_read_an_invalid_policy_has_one_event(status):
    class Unreadable(ApiServer):
        async def get(self, path: str) -> bytes:
            raise errors.ApiError(status, "", "", path)

    server, poster = Server(Unreadable()), Poster()
    object_events.PolicyEvents(poster, server.store)
    await server.see(BAD)
    assert poster.messages == ["there is no policy in force"]


@pytest.mark.parametrize("text", [None, GOOD])
async def test_the_copy_is_not_used_for_a_policy_that_was_deleted_or_is_valid(text):
    server = Server(ApiServer(GOOD.replace("f:", "old:"), "7"))
    await server.see(text)
    assert server.store.current is None if text is None else "f" in server.store.current.document.fabrics


async def test_a_policy_that_becomes_valid_while_the_copy_is_read_is_not_called_invalid(caplog):
    class Corrected(ApiServer):
        async def get(self, path: str) -> bytes:
            if not server.store.valid:
                metadata = views.ObjectMeta(name="railwright-policy", uid="u", resource_version="10")
                server.store.upsert(views.ConfigMap(metadata=metadata, data={"policy.yaml": GOOD}))
            return await super().get(path)

    cluster = Corrected(GOOD.replace("f:", "old:"), "7")
    server = Server(cluster)
    await server.see(BAD)
    assert caplog.records == []
    assert cluster.written == [("10", GOOD)]


async def test_a_valid_policy_is_stored_once_and_an_invalid_one_never():
    cluster = ApiServer()
    await Server(cluster).see(GOOD, "9")
    assert cluster.written == [("9", GOOD)]
    cluster.copy["metadata"]["resourceVersion"] = "2"
    await Server(cluster).see(GOOD, "10")
    await Server(cluster).see(BAD, "11")
    await Server(cluster, writes=False).see(GOOD.replace("f:", "g:"), "12")
    assert len(cluster.written) == 1


async def test_a_replica_that_lags_behind_does_not_replace_a_newer_copy():
    cluster = ApiServer(GOOD, "100")
    await Server(cluster).see(GOOD.replace("f:", "g:"), "99")
    assert cluster.written == []
    await Server(cluster).see(GOOD.replace("f:", "g:"), "101")
    assert [version for version, _ in cluster.written] == ["101"]


async def test_a_copy_of_another_object_is_replaced_whatever_its_version():
    for uid in ("of-a-backup", ""):
        cluster = ApiServer(GOOD, "90000000", uid)
        await Server(cluster).see(GOOD.replace("f:", "g:"), "99", uid="now")
        assert cluster.written == [("99", GOOD.replace("f:", "g:"))]
        await Server(cluster).see(GOOD, "98", uid="now")
        assert len(cluster.written) == 1


async def test_a_replica_whose_write_conflicts_compares_again():
    cluster = ApiServer()
    cluster.conflicts = 1
    await Server(cluster).see(GOOD)
    assert len(cluster.written) == 1
