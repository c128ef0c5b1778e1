"""`railwright gangs -w` and `fabric -w`: rows as they change, and what is printed while the API server is away."""

import asyncio
import contextlib
import json

import api_stub
import processes
import shell
import varied_clusters

from railwright.cli import __main__ as command_line
from railwright.fabric import names

NODES, PODS, GROUPS = "/api/v1/nodes", "/api/v1/pods", "/apis/scheduling.volcano.sh/v1beta1/podgroups"
POLICIES = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps"


class World(api_stub.World):
    """A world that also answers for a single object that may hold the policy: there is a ConfigMap."""

    async def _answer(self, request):
        head, _, name = request.path.rpartition("/")
        if head == POLICIES and name == names.POLICY_CONFIGMAP:
            (body,) = self.objects[POLICIES].values()
            return api_stub.web.Response(body=body, content_type="application/json")
        return await super()._answer(request)


def fill(world, vista):
    world.put(POLICIES, varied_clusters.CONFIGMAP)
    for path, objects in ((NODES, vista.nodes), (PODS, vista.pods), (GROUPS, vista.groups)):
        for item in objects:
            world.put(path, item)


@contextlib.asynccontextmanager
async def watching(kubeconfig, *options, command="gangs"):
    process = await processes.start_command(command, "-w", "--kubeconfig", kubeconfig, *options)
    try:
        async with asyncio.timeout(shell.PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_a_gang_that_changes_is_printed_again_and_no_other(tmp_path):
    vista = varied_clusters.Vista(1, 2, 4, gangs=0, waiting=0)
    vista.add_gang(2, name="llama", namespace="prod", placed=2)
    vista.add_gang(2, name="moe", namespace="prod", placed=0)
    async with World() as world:
        fill(world, vista)
        async with watching(api_stub.kubeconfig(tmp_path, world.port)) as process:
            first = [(await process.stdout.readline()).decode().split() for _ in range(3)]
            assert first[0][:4] == ["NAMESPACE", "GANG", "STATE", "PLACED"]
            assert [row[1:4] for row in first[1:]] == [["llama", "placed", "2/2"], ["moe", "waiting", "0/2"]]
            await shell.until(lambda: world.watched(PODS))  # this server has no events of the time before
            node = vista._take(1)[0]
            world.put(PODS, varied_clusters.pod("moe", "prod", 0, node, 2))
            row = (await process.stdout.readline()).decode().split()
            assert row[1:4] == ["moe", "starting", "1/2"]
            process.send_signal(2)
            await process.wait()
            assert process.returncode == 130


async def test_documents_of_one_gang_follow_each_other(tmp_path):
    vista = varied_clusters.Vista(1, 2, 4, gangs=0, waiting=0)
    vista.add_gang(2, name="moe", namespace="prod", placed=0)
    async with World() as world:
        fill(world, vista)
        options = ("moe", "-o", "yaml")
        async with watching(api_stub.kubeconfig(tmp_path, world.port), *options) as process:
            assert await read_placed(process) == b"placed: 0\n"
            await shell.until(lambda: world.watched(PODS))  # this server has no events of the time before
            for rank, expected in ((0, b"placed: 1\n"), (1, b"placed: 2\n")):
                world.put(PODS, varied_clusters.pod("moe", "prod", rank, vista._take(1)[0], 1))
                assert await read_placed(process) == expected


async def read_placed(process):
    """Return the line of the next document that has the number of placed pods."""
    while (line := await process.stdout.readline()) and not line.startswith(b"placed:"):
        pass
    return line


async def test_an_unreachable_cluster_is_reported_once(tmp_path):
    vista = varied_clusters.Vista(1, 2, 4, gangs=0, waiting=0)
    vista.add_gang(2, name="moe", namespace="prod", placed=0)
    world = World()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(world)
        fill(world, vista)
        process = await stack.enter_async_context(watching(api_stub.kubeconfig(tmp_path, world.port), "-o", "json"))
        decoder, text = json.JSONDecoder(), ""
        while True:
            line = await process.stdout.readline()
            assert line, (await process.stderr.read()).decode()
            text += line.decode()
            with contextlib.suppress(ValueError):
                assert decoder.raw_decode(text)[0]["key"] == "prod/moe"
                break
        await shell.until(lambda: world.watched(PODS))  # this server has no events of the time before
        await world.stop()
        assert "cannot reach http://127.0.0.1:" in (await process.stderr.readline()).decode()
        process.terminate()


async def test_a_node_that_changes_is_printed_again_and_no_other(tmp_path):
    vista = varied_clusters.Vista(1, 2, 4, gangs=0, waiting=0)
    vista.add_gang(1, name="moe", namespace="prod", placed=0)
    for number, node in enumerate(vista.nodes):
        node["metadata"]["labels"]["team"] = "vision" if number < 3 else "speech"
    names_ = [node["metadata"]["name"] for node in vista.nodes]
    async with World() as world:
        fill(world, vista)
        options = ("-l", "team=vision")
        async with watching(api_stub.kubeconfig(tmp_path, world.port), *options, command="fabric") as process:
            first = [(await process.stdout.readline()).decode().split() for _ in range(4)]
            assert first[0] == ["FABRIC", "LEAF", "DOMAIN", "RAILS", "FREE", "BUSY", "DEAD", "PODS"]
            assert sorted(row[2] for row in first[1:]) == sorted(names_[:3])
            await shell.until(lambda: world.watched(PODS))  # this server has no events of the time before
            world.put(PODS, varied_clusters.pod("moe", "prod", 0, names_[3], 2))  # a node without the label
            world.put(PODS, varied_clusters.pod("moe", "prod", 1, names_[1], 2))
            row = (await process.stdout.readline()).decode().split()
            assert row[2] == names_[1]
            assert int(row[5]) > 0
            assert row[7] == "prod/moe-worker-1"
            process.send_signal(2)
            await process.wait()
            assert process.returncode == 130


async def test_a_selector_of_nodes_leaves_out_the_others(tmp_path, capsys):
    vista = varied_clusters.Vista(1, 2, 4, gangs=0, waiting=0)
    vista.nodes[0]["metadata"]["labels"]["team"] = "vision"
    async with World() as world:
        fill(world, vista)
        kubeconfig = api_stub.kubeconfig(tmp_path, world.port)
        words = ["fabric", "--kubeconfig", kubeconfig, "-l"]
        assert await asyncio.to_thread(command_line.main, [*words, "team=vision", "-o", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        [leaf] = document["leaves"].values()
        assert [node["name"] for node in leaf["nodes"]] == [vista.nodes[0]["metadata"]["name"]]
        assert {fabric["nodes"] for fabric in document["fabrics"] if fabric["leaves"]} == {1}
        assert await asyncio.to_thread(command_line.main, [*words, "team=nobody"]) == 2
        assert capsys.readouterr() == (
            "",
            "railwright: no node has these labels; kubectl get nodes --show-labels has those of each node\n",
        )
