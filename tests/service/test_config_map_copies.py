"""The copies of ConfigMaps over HTTP: created, updated, removed, left alone, and what is reported."""

import asyncio
import contextlib

import api_stub
import msgspec
import pytest
import pytest_asyncio
from admitting import admitted, fabric, pod
from aiohttp import web

from railwright.cluster import client as clients
from railwright.fabric import views
from railwright.serving import metrics
from webhook import config_map_copies, controllers
from webhook import state as states

MOUNT = "{name: oci, namespace: default, mountPath: /etc/oci}"
POLICY = fabric(f"    mounts: {{configMaps: [{MOUNT}]}}\n")
SOURCE, COPY = "default/oci", "railwright-oci"
MARKS = {"labels": {"app.kubernetes.io/managed-by": "railwright"}, "annotations": {"railwright.io/copied-from": SOURCE}}


class Server:
    """An API server of ConfigMaps by NAMESPACE/NAME. `refused` are statuses by method."""

    def __init__(self) -> None:
        self.stored: dict[str, dict] = {}
        self.refused: dict[str, int] = {}
        self._version = 0

    def put(self, key: str, data: dict, **metadata) -> None:
        namespace, _, name = key.partition("/")
        self._version += 1
        version = {"uid": f"uid-{self._version}", "resourceVersion": str(self._version)}
        self.stored[key] = {"metadata": {"name": name, "namespace": namespace, **metadata, **version}, "data": data}

    def read(self, namespace: str) -> dict | None:
        tree = self.stored.get(f"{namespace}/{COPY}")
        return tree and tree["data"]

    async def answer(self, request: web.Request) -> web.Response:
        status, tree = self._respond(request, await request.json() if request.can_read_body else {})
        return web.json_response(api_stub.status(status, "told so") if tree is None else tree, status=status)

    def _respond(self, request: web.Request, body: dict) -> tuple[int, dict | None]:
        path, metadata = request.match_info, body.get("metadata", {})
        if (status := self.refused.get(request.method)) is not None:
            return status, None
        if "namespace" not in path:
            (_, name) = request.query["fieldSelector"].split("=")
            items = [tree for tree in self.stored.values() if tree["metadata"]["name"] == name]
            return 200, api_stub.listing(*items, version=self._version)
        key = f"{path['namespace']}/{path.get('name') or metadata['name']}"
        known = self.stored.get(key)
        if request.method == "POST" and known is None:
            self.put(key, body["data"], **{part: metadata[part] for part in MARKS})
            return 201, self.stored[key]
        if known is None or request.method == "POST":
            return (404 if known is None else 409), None
        if request.method == "PUT":
            if metadata["resourceVersion"] != known["metadata"]["resourceVersion"]:
                return 409, None
            self.put(key, body["data"], **{part: metadata[part] for part in MARKS})
        elif request.method == "DELETE":
            assert body["preconditions"] == {"uid": known["metadata"]["uid"]}
            del self.stored[key]
        return 200, known


@pytest_asyncio.fixture(loop_scope="session")
async def server():
    stored = Server()
    stored.put(SOURCE, {"nccl.conf": "a=1"})
    paths = ("/api/v1/configmaps", "/api/v1/namespaces/{namespace}/configmaps")
    routes = [web.route("*", path, stored.answer) for path in (*paths, f"{paths[1]}/{{name}}")]
    async with api_stub.serve_routes(*routes) as stored.port:
        yield stored


class Replica:
    """A copier with caches and Events of its own."""

    def __init__(self, client, policy, unused_seconds: float) -> None:
        self.state, self.messages, self.policy = states.State(), [], policy
        parts = controllers.Parts(
            client=client,
            state=self.state,
            get_policy=lambda: self.policy,
            get_problem=lambda: "",
            poster=self,
            counters=metrics.Metrics("webhook"),
            unused_seconds=unused_seconds,
        )
        self.copier = config_map_copies.ConfigMapCopier(parts)

    def post(self, involved, *, warning: bool, reason: str, message: str) -> None:
        assert (involved.kind, reason, warning) == ("Pod", "ConfigMapNotCopied", True)
        self.messages.append(message)

    def observe(self, *namespaces: str, node: str = "", labels=None, **status) -> None:
        for namespace in namespaces:
            tree = admitted(pod(nodeName=node), POLICY)
            tree["metadata"]["namespace"] = namespace
            metadata = {"name": namespace, "labels": labels or {}}
            self.state.namespaces.upsert(msgspec.convert({"metadata": metadata}, views.Namespace))
            self.state.copying_pods.upsert(msgspec.convert(tree | {"status": status}, views.Pod))


@pytest_asyncio.fixture(loop_scope="session")
async def start(server, tmp_path, monkeypatch):
    """`start()`: a running replica, whose passes follow each other at once."""
    monkeypatch.setattr(config_map_copies, "_PASS_SECONDS", 0.05)
    monkeypatch.setattr(config_map_copies, "_SHORTEST_PAUSE_SECONDS", 0.01)
    client = await clients.connect(api_stub.kubeconfig(tmp_path, server.port))
    tasks = []

    def run(policy=POLICY, unused_seconds=60.0):
        replica = Replica(client, policy, unused_seconds)
        tasks.append(asyncio.create_task(replica.copier.run()))
        return replica

    yield run
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await client.close()


async def wait(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.01)


async def test_each_namespace_with_such_pods_gets_a_copy_that_follows_the_source(server, start):
    replicas = [start(), start()]
    for replica in replicas:
        replica.observe("prod", "other")
    await wait(lambda: server.read("prod") and server.read("other"))
    metadata = server.stored[f"prod/{COPY}"]["metadata"]
    assert {part: metadata[part] for part in MARKS} == MARKS
    server.put(SOURCE, {"nccl.conf": "a=2"})
    await wait(lambda: server.read("prod") == server.read("other") == {"nccl.conf": "a=2"})
    server.put(f"prod/{COPY}", {"nccl.conf": "of a tenant"}, **MARKS)
    await wait(lambda: server.read("prod") == {"nccl.conf": "a=2"})
    del server.stored[f"prod/{COPY}"]
    await wait(lambda: server.read("prod") == {"nccl.conf": "a=2"})
    assert server.read("default") is None
    assert not any(replica.messages for replica in replicas)


async def test_a_config_map_of_somebody_else_stays_as_it_is(server, start):
    server.put(f"prod/{COPY}", {"a": "b"})
    replica = start(unused_seconds=0.0)
    replica.observe("prod")
    await wait(lambda: replica.state.copies.foreign == {("prod", COPY)})
    replica.observe("prod", phase="Succeeded")
    replica.observe("other")
    await wait(lambda: server.read("other"))
    assert server.read("prod") == {"a": "b"}


async def test_a_copy_is_removed_when_no_pod_has_named_it_for_a_time(server, start):
    replica = start(unused_seconds=0.2)
    replica.observe("prod", "other")
    await wait(lambda: server.read("prod") and server.read("other"))
    replica.observe("prod", phase="Succeeded")
    await wait(lambda: server.read("prod") is None)
    assert server.read("other")
    replica.policy = fabric()  # names no source any more
    await asyncio.sleep(0.1)
    assert server.read("other"), "its pod runs"
    replica.observe("other", phase="Failed")
    await wait(lambda: server.read("other") is None)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda server: server.stored.pop(SOURCE), "it does not exist; create it"),
        (lambda server: server.put(SOURCE, {"a": "x" * config_map_copies.MAX_BYTES}), "at most 262144 are copied"),
        (lambda server: server.refused.update(GET=403), "add default/oci to webhook.copiedConfigMaps"),
        (lambda server: server.refused.update(POST=403), "told so"),
    ],
)
async def test_what_is_not_copied_is_reported_on_the_pod_and_copied_later(server, start, spoil, words):
    spoil(server)
    replica = start()
    replica.observe("prod", node="n", phase="Pending")
    await wait(lambda: replica.messages)
    assert replica.messages[0].startswith(f"ConfigMap {COPY}, which the Pod waits for, is not written: ")
    assert words in replica.messages[0]
    assert server.read("prod") is None
    server.refused.clear()
    server.put(SOURCE, {"a": "b"})
    await wait(lambda: server.read("prod") == {"a": "b"})


async def test_a_namespace_that_may_not_use_the_fabric_gets_no_copy(server, start):
    # anybody may create a pod that names one
    team = "    namespaces: {matchLabels: {team: vision}}\n"
    replica = start(fabric(f"    mounts: {{configMaps: [{MOUNT}]}}\n{team}"))
    replica.observe("other")
    replica.observe("prod", labels={"team": "vision"})
    await wait(lambda: server.read("prod"))
    assert server.read("other") is None


async def test_the_number_of_copies_is_limited(server, start, monkeypatch):
    monkeypatch.setattr(config_map_copies, "MAX_COPIES", 2)
    replica = start()
    replica.observe("a", "b", "c")
    await wait(lambda: replica.messages)
    assert "copies already" in replica.messages[0]
    assert len(server.stored) == 3
    assert replica.state.copies.problems[COPY].startswith("there are")


async def test_pods_that_name_copies_of_nothing_make_no_request(server, start):
    replica = start(fabric())
    replica.observe("prod")
    await asyncio.sleep(0.1)
    assert [*server.stored] == [SOURCE]
