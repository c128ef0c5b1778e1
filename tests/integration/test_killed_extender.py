"""The extender is killed during the placement of gangs by Volcano: one that restarts, and one of two replicas.

The same under kube-scheduler is in test_kube_gangs.py.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from plane import gangs, servers
from plane import plane as planes
from plane import site as sites
from plane import volcano_gangs as volcano


@pytest.fixture
def kill(volcano_gangs):
    """Return `kill(call)`: kill the extender during the allocate call of that number, while Volcano waits for it."""
    site = volcano_gangs.site

    def arm(call: int, *, is_restarted: bool = True) -> None:
        call_number = site.proxy.counts["/volcano/allocate"] + call

        async def hook(request):
            if request.path == "/volcano/allocate" and site.proxy.counts[request.path] == call_number:
                site.proxy.backend = None
                await site.extender.kill()
                if is_restarted:
                    await site.start_extender()

        site.proxy.hook = hook

    return arm


async def test_a_gang_takes_no_third_leaf_after_a_restart(nodes, volcano_gangs, kill):
    site = volcano_gangs.site
    await gangs.make_leaves(nodes, a=5, b=4, c=4, d=2)
    first = await volcano_gangs.install(httpTimeout="60s")
    kill(6)  # of the nine pods, one is on the second leaf
    struck = await volcano_gangs.run("struck", 9)
    assert not first.process.running, "the extender was to die in the middle of the gang"
    site.proxy.hook = None
    assert len(set(gangs.list_leaves(struck))) == 2, gangs.list_leaves(struck)
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    after = await volcano_gangs.run("after", 4)
    assert len(gangs.list_runs(after)) == 1
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    taken = {*map(gangs.get_node, (*struck, *after))}
    assert len(taken) == 13
    full = await gangs.list_full(site, sorted(taken), gpus=8)
    assert full == taken, "the restarted extender knows what the cluster holds"


async def test_a_gang_completes_while_the_extender_is_away(nodes, volcano_gangs, kill):
    await gangs.make_leaves(nodes, a=6, b=6)
    first = await volcano_gangs.install()
    kill(3, is_restarted=False)
    struck = await volcano_gangs.run("struck", 6)
    assert not first.process.running
    volcano_gangs.site.proxy.hook = None
    await volcano_gangs.site.start_extender()
    after = await volcano_gangs.run("after", 6)
    assert len({*map(gangs.get_node, (*struck, *after))}) == 12, "no node is given twice"


# --- two replicas ---------------------------------------------------------------------------------------------


_NOTICED_SECONDS = 1.0  # kubelet sees that a container has ended, and the Service drops its address


class Replicas:
    """Two extenders. The proxy sends requests to the first that runs, as the Service keeps a scheduler with one."""

    def __init__(self, installation: sites.Site) -> None:
        self.site, self.proxy = installation, installation.proxy
        self.running: list[servers.Server] = []

    async def start(self) -> servers.Server:
        """Start one more replica, and wait until it is ready."""
        server = await self.site.plane.serve(
            "extender", "--plain-http", "--drain-seconds=1", self.site.kubeconfig("extender")
        )
        self.running.append(await server.ready())
        self._lead()
        return server

    async def kill_target(self) -> servers.Server:
        """Kill the target replica, and return it. Connections are closed until the proxy has another target."""
        killed = self.running.pop(0)
        self.proxy.backend = None
        await killed.kill()
        asyncio.get_running_loop().call_later(_NOTICED_SECONDS, self._lead)
        return killed

    def _lead(self) -> None:
        self.proxy.backend = self.running[0].port if self.running else None


@contextlib.asynccontextmanager
async def run_replicas(on: planes.Plane, policy: str) -> AsyncIterator[Replicas]:
    """Yield an installation with two replicas, both ready; all of it is removed again."""
    async with sites.running(on) as installation:
        await installation.policy(policy)
        made = Replicas(installation)
        try:
            for _ in range(2):
                await made.start()
            yield made
        finally:
            await on.schedulers.reset()  # before their extenders end
            await asyncio.gather(*(server.stop() for server in made.running))


GANGS, SIZE = 20, 3


async def run_gangs(plane, replicas, nodes, namespace):
    """Create twenty gangs at once on ten leaves that hold two each; return the pods of each once all run."""
    await gangs.make_leaves(nodes, **dict.fromkeys("abcdefghij", 2 * SIZE))
    await plane.schedulers.volcano(conf=volcano.conf(replicas.proxy.url, httpTimeout="2s"))
    jobs = volcano.VolcanoGangs(replicas.site, namespace)
    names = [f"gang-{number:02}" for number in range(GANGS)]
    for name in names:
        await jobs.create(name, SIZE)
    placed = [await jobs.running(name, SIZE) for name in names]
    taken = [gangs.get_node(pod) for pods in placed for pod in pods]
    assert len(set(taken)) == GANGS * SIZE, "each pod has a node of its own"
    return placed


async def test_no_gang_fails_or_waits_when_the_replica_in_use_is_killed(plane, nodes, namespace):
    async with run_replicas(plane, gangs.POLICY) as replicas:
        other, killed = replicas.running[1], []

        async def kill(request):
            if request.path == "/volcano/allocate" and replicas.proxy.counts[request.path] == GANGS * SIZE // 2:
                killed.append(await replicas.kill_target())

        replicas.proxy.hook = kill
        placed = await run_gangs(plane, replicas, nodes, namespace)
        replicas.proxy.hook = None
        assert killed
        assert replicas.running == [other]
        on_one_leaf = [len(set(gangs.list_leaves(pods))) for pods in placed].count(1)
        assert on_one_leaf >= GANGS // 2, [gangs.list_leaves(pods) for pods in placed]
        await sites.wait_metric(other, "railwright_assumed_pods", 0)
        taken = sorted(gangs.get_node(pod) for pods in placed for pod in pods)
        replicas.site.extender = other
        assert await gangs.list_full(replicas.site, taken, gpus=8) == {*taken}, "it knows what the cluster holds"
