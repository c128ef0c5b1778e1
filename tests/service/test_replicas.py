"""Two extender processes on one API server: either answers and explains alone."""

import json

import aiohttp
import api_stub
import child_processes
import objects_stub
import processes
import pytest_asyncio
import shell
import varied_clusters
from aiohttp import web

from railwright.cli.demo import scenario

VISTA = varied_clusters.Vista(1, 2, 4, gangs=0, waiting=0)
for gang in ("train", "other"):
    VISTA.add_gang(4, name=gang, namespace="prod", placed=0)
PODS = {pod["metadata"]["name"]: pod for pod in VISTA.pods}
RANKS = [f"train-worker-{rank}" for rank in range(4)]
LEAVES = {node["metadata"]["name"]: node["metadata"]["labels"][scenario.LEAF_LABEL] for node in VISTA.nodes}


class Objects(objects_stub.Objects):
    """An API server that knows every token, and allows everything."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("reviews"):
            return web.json_response({"status": {"authenticated": True, "allowed": True, "user": {"username": "u"}}})
        return await super().answer(request)


class Replica:
    """One extender process."""

    def __init__(self, server: processes.Process, session: aiohttp.ClientSession) -> None:
        self.server, self.session, self.url = server, session, f"http://127.0.0.1:{server.port}"

    async def ask(self, verb: str, name: str) -> object:
        """Return the answer to a request of kube-scheduler about a pod."""
        body = {"Pod": PODS[name], "Nodes": None, "NodeNames": [*LEAVES]}
        async with self.session.post(f"{self.url}/scheduler/{verb}", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def explain(self, name: str) -> dict:
        url = f"{self.url}/explain/prod/{name}"
        async with self.session.get(url, headers={"Authorization": "Bearer t"}) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def is_ready(self) -> bool:
        return (await self.server.ops("/readyz")).status == 200


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def objects():
    async with objects_stub.serving(Objects()) as served:
        served.lists |= VISTA.get_lists()
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def start(objects, tmp_path_factory):
    """Yield `await start()`: start a replica."""
    folder = tmp_path_factory.mktemp("replicas")
    api_stub.kubeconfig(folder, objects.port)
    VISTA.write(folder)
    started = []

    async with aiohttp.ClientSession() as session:

        async def begin() -> Replica:
            sources = (f"--kubeconfig={folder / 'kubeconfig'}", f"--policy={folder / 'policy.yaml'}")
            server = await processes.begin("extender", "--plain-http", *sources)
            child_processes.share(server.pid)
            started.append(server)
            return Replica(server, session)

        yield begin
        for server in started:
            await server.end()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(objects, start):
    made = [await start(), await start()]
    for replica in made:
        await replica.server.ready()
    return made


async def test_a_replica_is_ready_only_once_its_caches_are_full(objects, start):
    objects.fault = lambda request: 500 if request.path == "/api/v1/pods" else None
    replica = await start()
    answer = await replica.server.ops("/readyz")
    assert (answer.status, "pods" in json.loads(answer.body)["checks"]["caches"]) == (503, True)
    objects.fault = lambda _: None
    await shell.until(replica.is_ready)
    assert await replica.server.end() == 0


async def test_two_replicas_give_the_same_answers_and_explanations(pair):
    first, second = pair
    explained = [[await replica.explain(name) for name in RANKS] for replica in pair]
    assert explained[0] == explained[1]
    gangs = [one["gang"] for one in explained[0]]
    assert {(gang["state"], gang["size"], gang["leaves"]) for gang in gangs} == {("waiting", 4, 1)}
    for name in RANKS:
        left = [(await replica.ask("filter", name))["NodeNames"] for replica in pair]
        assert left[0] == left[1]
        assert len({LEAVES[node] for node in left[0]}) == 1, "the leaf of the plan"
        assert await first.ask("prioritize", name) == await second.ask("prioritize", name)


async def test_explanations_do_not_depend_on_earlier_decisions_of_a_replica(pair):
    first, _ = pair
    for name in RANKS[:2]:
        await first.ask("filter", name)
        await first.ask("prioritize", name)

    async def explain_undecided() -> list[list[dict]]:
        """Wait until the pods no longer count on the nodes that were ranked first; return each replica's answer."""
        explained = [[await replica.explain(name) for name in (RANKS[2], "other-worker-0")] for replica in pair]
        return explained if all(one["gang"]["placed"] == 0 for both in explained for one in both) else []

    explained = await shell.until(explain_undecided)
    assert explained[0] == explained[1]
