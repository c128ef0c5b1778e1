"""Serves the dashboard on the demo's cluster with a stream of jobs, with railwright and by Volcano alone.

The webhook admits every pod, and the extender scores the nodes of the first cluster. Each cluster is a snapshot file,
which its view of the dashboard reads as `railwright dashboard --snapshot` does.
"""

import asyncio
import copy
import datetime as dt
import functools
import pathlib
import random
import sys
import time
import uuid
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec

from railwright.cli import cluster_overview, dashboard
from railwright.cli.demo import fixture as fixtures
from railwright.cli.demo import scenario
from railwright.serving import settings
from railwright.simulator import cluster_specs

Tree = dict[str, Any]
VIEWS = ("with railwright", "Volcano alone")
_PERIOD = 2.5  # seconds between two jobs
_FIRST_JOBS = 4  # at the start, so that there is something to see
_SIZES = (2, 4, 4, 6, 8, 8, 12)  # pods of a job, each with all GPUs of a node
_SECONDS = (15.0, 40.0)  # shortest and longest duration of a job; on average the jobs use most of the nodes
_MAX_WAITING = 3  # jobs; no new one is submitted while more wait

Place = Callable[[Sequence[Tree], Sequence[Tree]], Awaitable[Sequence[scenario.Placed]]]
"""(pods of a gang, pods that run already) -> the node of each pod of the gang."""


class Job(msgspec.Struct, frozen=True):
    """A gang of admitted pods, and how long it runs."""

    pods: Sequence[Tree]
    seconds: float


class World:
    """One cluster: what runs, what waits, and the snapshot file that shows it."""

    def __init__(self, fixture: fixtures.Fixture, path: pathlib.Path, place: Place) -> None:
        """Begin with the demo's nodes and busy pods. `place` chooses nodes."""
        self.path = path
        self.waiting: list[Job] = []
        self._fixture, self._place = fixture, place
        self._running: list[tuple[float, Sequence[Tree]]] = []  # (time of the end, pods)
        self._shown = 0  # waiting jobs that the snapshot shows
        self.write()

    async def advance(self, now: float) -> None:
        """End the jobs that are done, place those that fit in the order of their submission, and write the snapshot.

        Only jobs that an earlier snapshot shows are placed, because the extender has to know all pods of a gang.
        """
        self._running = [(end, pods) for end, pods in self._running if end > now]
        while self._shown and self._fits(self.waiting[0]):
            job = self.waiting.pop(0)
            self._shown -= 1
            placed = await self._place(job.pods, self._list_bound())
            pairs = zip(job.pods, placed, strict=True)
            self._running.append((now + job.seconds, [_bind(pod, on.node) for pod, on in pairs]))
        self.write()

    def write(self) -> None:
        """Write the snapshot."""
        pending = [pod for job in self.waiting for pod in job.pods]
        fixtures.write_snapshot(self.path, [*self._fixture.objects, *self._list_bound(), *pending])
        self._shown = len(self.waiting)

    def _list_bound(self) -> list[Tree]:
        return [pod for _, pods in self._running for pod in pods]

    def _fits(self, job: Job) -> bool:
        state = scenario.open_session(self._fixture, self._list_bound())
        return len(state.list_feasible(job.pods[0])) >= len(job.pods)


async def serve(fixture: fixtures.Fixture) -> None:
    """Serve both views on a free port of 127.0.0.1, and submit jobs, until SIGINT or SIGTERM."""
    async with aiohttp.ClientSession() as session:
        worlds = (
            World(fixture, fixture.folder / "snapshot.json", functools.partial(scenario.place, session, fixture)),
            World(fixture, fixture.folder / "alone.json", functools.partial(scenario.place, None, fixture)),
        )
        views = {name: await _open_view(world) for name, world in zip(VIEWS, worlds, strict=True)}
        submit = functools.partial(_submit_jobs, session, fixture, worlds)
        await dashboard.serve_views(views, settings.parse_address("127.0.0.1:0"), _announce, [submit])


async def _open_view(world: World) -> dashboard.View:
    policy = world.path.with_name("policy.yaml")
    given = cluster_overview.Sources(snapshot=str(world.path), policy=str(policy))
    view = dashboard.View(given, "demo: simulated nodes")
    await view.open(None)
    return view


async def _submit_jobs(session: aiohttp.ClientSession, fixture: fixtures.Fixture, worlds: Sequence[World]) -> None:
    """Submit the same jobs to each cluster, until cancelled or until a server no longer answers."""
    try:
        await _repeat(session, fixture, worlds)
    except aiohttp.ClientError:
        print("railwright demo: a server has stopped, so no more jobs are submitted", file=sys.stderr)


async def _repeat(session: aiohttp.ClientSession, fixture: fixtures.Fixture, worlds: Sequence[World]) -> None:
    rng = random.Random(fixtures.SEED)  # noqa: S311 - the same jobs in every demo
    number = 0
    while True:
        count = _FIRST_JOBS if number == 0 else 1
        if max(len(world.waiting) for world in worlds) <= _MAX_WAITING:
            for _ in range(count):
                number += 1
                job = await _admit_job(session, fixture, number, rng)
                for world in worlds:
                    world.waiting.append(job)
        for world in worlds:
            await world.advance(time.monotonic())
        await asyncio.sleep(_PERIOD)


async def _admit_job(session: aiohttp.ClientSession, fixture: fixtures.Fixture, number: int, rng: random.Random) -> Job:
    """Return a job after admission of its pods by the webhook."""
    size, seconds = rng.choice(_SIZES), rng.uniform(*_SECONDS)
    manifest = copy.deepcopy(fixture.job)
    manifest["metadata"]["name"] = f"llm-{number}"
    manifest["spec"]["minAvailable"] = size
    manifest["spec"]["tasks"][1]["replicas"] = size - 1
    # short, because the name of Volcano's PodGroup ends with it
    pods = list(cluster_specs.build_volcano_pods(manifest, uid=f"{rng.getrandbits(20):05x}"))
    admitted = await asyncio.gather(*(scenario.admit(session, fixture, pod) for pod in pods))
    created = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    for index, pod in enumerate(admitted):
        own = {"uid": str(uuid.UUID(int=(number << 16) + index + 1)), "creationTimestamp": created}
        pod.after["metadata"].update(own)
    return Job([{**pod.after, "status": {"phase": "Pending"}} for pod in admitted], seconds)


def _bind(pod: Tree, node: str) -> Tree:
    """Return a pod that runs on a node."""
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def _announce(url: str) -> None:
    print(f"dashboard: {url}  (Ctrl-C to stop; switch between '{VIEWS[0]}' and '{VIEWS[1]}' in its header)", flush=True)
    if sys.stdout.isatty():
        webbrowser.open(url)
