"""Runs `railwright demo`: shows each step and the result, serves the dashboard, and sets the exit code.

The result is a card of one screen. With --serve, the dashboard shows the demo's cluster
with a stream of jobs: the webhook admits every pod, and the extender scores the nodes. The cluster is a snapshot file,
which the dashboard reads as `railwright dashboard --snapshot` does.
"""

import argparse
import asyncio
import contextlib
import copy
import datetime as dt
import functools
import itertools
import json
import pathlib
import random
import re
import sys
import tempfile
import time
import uuid
import webbrowser
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import msgspec
import yaml

from railwright.cli import cluster_overview, dashboard, formats, output
from railwright.cli.demo import objects, scenario
from railwright.cli.output import Line
from railwright.fabric import names, text
from railwright.serving import settings


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all pods were injected and placed optimally, 1 if not, 2 if a server did not start."""
    with tempfile.TemporaryDirectory(prefix="railwright-demo-") as folder:
        try:
            return asyncio.run(_run_demo(arguments, pathlib.Path(folder)))
        except scenario.StartError as error:
            print(f"railwright demo: {error}", file=sys.stderr)
            return output.UNUSABLE
        except KeyboardInterrupt:
            return output.OK


async def _run_demo(arguments: argparse.Namespace, folder: pathlib.Path) -> int:
    _report("starting")
    async with contextlib.AsyncExitStack() as stack:
        with output.show_progress("starting"):  # cleared at the end, also of an error
            running = await stack.enter_async_context(scenario.start(folder, report=_report))
            outcome = await scenario.run(running, _report)
        min_leaves = scenario.count_fewest_leaves(outcome.free_by_leaf, len(outcome.placed))
        is_optimal = scenario.count_leaves(outcome.placed) == min_leaves
        if formats.is_document(arguments.output):
            document = {"fine": is_optimal, "min_leaves": min_leaves} | msgspec.to_builtins(outcome)
            formats.print_document(document, arguments.output)
        else:
            output.print_lines(_format_card(running, outcome))
        if arguments.svg:
            lines = _format_card(running, outcome)
            picture = output.draw(lines, title="railwright demo", width=_CARD_WIDTH)
            output.write_picture(arguments.svg, picture)
        if not is_optimal:
            print("railwright demo: the gang was not placed optimally", file=sys.stderr)
        if arguments.serve:
            await serve(running)
    return output.OK if is_optimal else output.FINDINGS


def _report(step: str) -> None:
    """Show a step in the last line of a terminal; without one, print it."""
    if output.is_animated(sys.stderr):
        output.show_status(step)
    else:
        print(f"railwright demo: {step}", file=sys.stderr, flush=True)


# --- the card -------------------------------------------------------------------------------------------

Tree = dict[str, Any]
_CARD_WIDTH = 80  # columns
_LEFT = 39  # columns before the line in the middle
_MAP = 37  # columns of a map of the leaves
_POD, _FREE, _BUSY = "●", "○", "x"
_BAR = 20  # columns of a bar at full bandwidth
_NEXT = (
    ("Your job:  ", "railwright explain job.yaml --policy policy.yaml"),
    ("Live page: ", "railwright demo --serve; of your cluster: railwright dashboard --open"),
    ("Install:   ", "helm install railwright CHART -n railwright-system --create-namespace"),
)


def _format_card(fixture: scenario.Fixture, outcome: scenario.Outcome) -> Iterator[Line]:
    """Yield the lines of the card."""
    resources = fixture.nodes[0]["status"]["allocatable"]
    record = json.loads(outcome.admitted[0].after["metadata"]["annotations"][names.INJECTION])
    rails = len(record["rails"])
    job = f"A job of {len(outcome.placed)} pods on {len(fixture.nodes)} simulated nodes"
    yield ((f"{job} with {resources['nvidia.com/gpu']} GPUs and {rails} RDMA rails each", "bold"),)
    yield _join((("You write one label", "bold"),), (("The webhook adds to each pod", "bold"),))
    yield from map(_join, *_pad(_format_job(fixture.job), _format_changes(outcome.admitted[0])))
    yield ()
    yield _join((("Without: no label, Volcano alone", "bold"),), (("With railwright: label and extender", "bold"),))
    maps = (_format_map(fixture, placed) for placed in (outcome.without, outcome.placed))
    yield from map(_join, *maps)
    yield _join(_format_leaves(outcome.without, "red"), _format_leaves(outcome.placed, "green"))
    yield _join((("network: TCP on the pod network", "red"),), ((f"network: RDMA on {rails} rails", "green"),))
    yield _join(_format_bar(outcome.bandwidth_without, "red"), _format_bar(outcome.bandwidth, "green"))
    legend = f"{_POD} node of the job   {_FREE} free   {_BUSY} busy   a group: the nodes of one leaf switch"
    yield ((legend, "dim"),)
    placement = yaml.safe_load(fixture.policy_text)["fabrics"]["roce"]["placement"]
    uplinks = f"uplinks {placement['oversubscription'][0]}:1"  # of a leaf
    yield ((f"Bandwidth: both placements over RDMA, {uplinks}. Modelled, not measured.", "dim"),)
    yield ()
    yield from (((purpose, ""), (command, "bold")) for purpose, command in _NEXT)


def _join(left: Line, right: Line) -> Line:
    """Return a line with two columns."""
    used = sum(len(part) for part, _ in left)
    return (*left, (" " * (_LEFT - used), ""), ("│ ", "dim"), *right)


def _pad(*columns: Sequence[Line]) -> list[list[Line]]:
    """Return the columns with equal numbers of lines."""
    height = max(map(len, columns))
    return [[*column, *[()] * (height - len(column))] for column in columns]


def _format_job(job: Tree) -> list[Line]:
    """Return the parts of the job's template that the demo concerns, with the label marked."""
    template = job["spec"]["tasks"][0]["template"]
    [container] = template["spec"]["containers"]
    limits = {"name": container["name"], "resources": {"limits": container["resources"]["limits"]}}
    tree = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": {"containers": [limits]}}
    lines = yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=_LEFT).splitlines()
    return [((line, "green" if names.FABRIC in line else ""),) for line in lines]


def _format_changes(pod: scenario.Admitted) -> list[Line]:
    """Return a line for each kind of change."""
    before, after = pod.before["spec"]["containers"][0], pod.after["spec"]["containers"][0]
    networks = pod.after["metadata"]["annotations"][names.NETWORKS].split(",")
    devices = [name for name in after["resources"]["limits"] if name not in before["resources"]["limits"]]
    memory = next(
        volume["emptyDir"]["sizeLimit"]
        for volume in pod.after["spec"]["volumes"]
        if "sizeLimit" in volume.get("emptyDir", {})
    )
    capabilities = after["securityContext"]["capabilities"]["add"]
    return [
        (("networks  ", "dim"), (_shorten(networks), "green")),
        (("devices   ", "dim"), (_shorten(devices), "green")),
        (("memory    ", "dim"), (f"{memory} of shared memory", "green")),
        (("rights    ", "dim"), (", ".join(capabilities), "green")),
        (("variables ", "dim"), (f"{len(after['env'])}, of NCCL, UCX and others", "green")),
        (("finds     ", "dim"), ("devices and GIDs in the pod", "green")),
        (("record    ", "dim"), ("the reason for each change", "green")),
    ]


def _shorten(values: Sequence[str]) -> str:
    """Return names that differ in their last number as FIRST..LAST."""
    last = re.search(r"\d+$", values[-1])
    return f"{values[0]}..{last[0]}" if last and len(values) > 1 else values[0]


def _format_map(fixture: scenario.Fixture, placed: Sequence[scenario.Placed]) -> list[Line]:
    """Return the nodes of each leaf as cells, the leaves of a superpod together."""
    gang = {pod.node for pod in placed}
    busy = {pod["spec"]["nodeName"] for pod in fixture.pods if _requests_gpus(pod)}
    lines: list[Line] = []
    for _, nodes in itertools.groupby(fixture.nodes, key=lambda node: node["metadata"]["labels"][objects.SPINE_LABEL]):
        lines.append(())
        for _, members in itertools.groupby(nodes, key=lambda node: node["metadata"]["labels"][objects.LEAF_LABEL]):
            cells = [_format_cell(node["metadata"]["name"], gang, busy) for node in members]
            if sum(len(part) for part, _ in lines[-1]) + 1 + len(cells) > _MAP:
                lines.append(())
            lines[-1] = (*lines[-1], (" ", ""), *cells)
    return lines


def _format_cell(node: str, gang: set[str], busy: set[str]) -> tuple[str, str]:
    if node in gang:
        return (_POD, "bold cyan")
    return (_BUSY, "dim") if node in busy else (_FREE, "dim")


def _requests_gpus(pod: Tree) -> bool:
    return "nvidia.com/gpu" in pod["spec"]["containers"][0]["resources"]["requests"]


def _format_leaves(placed: Sequence[scenario.Placed], style: str) -> Line:
    leaves = text.format_count(scenario.count_leaves(placed), "leaf")
    return ((f"{leaves}; {scenario.count_crossings(placed)} of {len(placed)} ring edges leave one", style),)


def _format_bar(bandwidth: float, style: str) -> Line:
    return (("bandwidth ", ""), ("█" * round(bandwidth * _BAR), style), (f" {round(bandwidth * 100)} %", style))


# --- the dashboard with a stream of jobs --------------------------------------------------------------------

_PERIOD = 2.5  # seconds between two jobs
_FIRST_JOBS = 4  # at the start, so that there is something to see
_SIZES = (2, 4, 4, 6, 8, 8, 12)  # pods of a job, each with all GPUs of a node
_SECONDS = (15.0, 40.0)  # shortest and longest duration of a job; on average the jobs use most of the nodes
_MAX_WAITING = 3  # jobs; no new one is submitted while more wait


class Job(msgspec.Struct, frozen=True):
    """A gang of admitted pods, and how long it runs."""

    pods: Sequence[Tree]
    seconds: float


class World:
    """The cluster: what runs, what waits, and the snapshot file that shows it."""

    def __init__(self, session: aiohttp.ClientSession, fixture: scenario.Fixture) -> None:
        """Begin with the demo's nodes and busy pods."""
        self.path = fixture.folder / "snapshot.json"
        self.waiting: list[Job] = []
        self._session, self._fixture = session, fixture
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
            placed = await scenario.place(self._session, self._fixture, job.pods, self._list_bound())
            pairs = zip(job.pods, placed, strict=True)
            self._running.append((now + job.seconds, [_bind(pod, on.node) for pod, on in pairs]))
        self.write()

    def write(self) -> None:
        """Write the snapshot."""
        pending = [pod for job in self.waiting for pod in job.pods]
        scenario.write_snapshot(self.path, [*self._fixture.objects, *self._list_bound(), *pending])
        self._shown = len(self.waiting)

    def _list_bound(self) -> list[Tree]:
        return [pod for _, pods in self._running for pod in pods]

    def _fits(self, job: Job) -> bool:
        state = scenario.open_session(self._fixture, self._list_bound())
        return len(state.list_feasible(job.pods[0])) >= len(job.pods)


async def serve(fixture: scenario.Fixture) -> None:
    """Serve the dashboard on a free port of 127.0.0.1, and submit jobs, until SIGINT or SIGTERM."""
    async with aiohttp.ClientSession() as session:
        world = World(session, fixture)
        files = cluster_overview.Sources(snapshot=str(world.path), policy=str(world.path.with_name("policy.yaml")))
        view = dashboard.View(files, "demo: simulated nodes")
        await view.open(None)
        submit = functools.partial(_submit_jobs, session, fixture, world)
        await dashboard.serve_view(view, settings.parse_address("127.0.0.1:0"), _announce, [submit])


async def _submit_jobs(session: aiohttp.ClientSession, fixture: scenario.Fixture, world: World) -> None:
    """Submit jobs until cancelled or until a server no longer answers."""
    try:
        await _repeat(session, fixture, world)
    except aiohttp.ClientError:
        print("railwright demo: a server has stopped, so no more jobs are submitted", file=sys.stderr)


async def _repeat(session: aiohttp.ClientSession, fixture: scenario.Fixture, world: World) -> None:
    rng = random.Random(scenario.SEED)  # noqa: S311 - the same jobs in every demo
    number = 0
    while True:
        count = _FIRST_JOBS if number == 0 else 1
        if len(world.waiting) <= _MAX_WAITING:
            for _ in range(count):
                number += 1
                world.waiting.append(await _admit_job(session, fixture, number, rng))
        await world.advance(time.monotonic())
        await asyncio.sleep(_PERIOD)


async def _admit_job(session: aiohttp.ClientSession, fixture: scenario.Fixture, number: int, rng: random.Random) -> Job:
    """Return a job after admission of its pods by the webhook."""
    size, seconds = rng.choice(_SIZES), rng.uniform(*_SECONDS)
    manifest = copy.deepcopy(fixture.job)
    manifest["metadata"]["name"] = f"llm-{number}"
    manifest["spec"]["minAvailable"] = size
    manifest["spec"]["tasks"][1]["replicas"] = size - 1
    # short, because the name of Volcano's PodGroup ends with it
    pods = list(objects.build_volcano_pods(manifest, uid=f"{rng.getrandbits(20):05x}"))
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
    print(f"dashboard: {url}  (Ctrl-C to stop)", flush=True)
    if sys.stdout.isatty():
        webbrowser.open(url)
