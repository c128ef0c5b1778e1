"""Gangs placed by real schedulers on the uneven 64-node cluster, 7:1.

Real etcd, API server, controllers and schedulers (tests/integration) on kwok's nodes. Other jobs hold nodes chosen at
random; then gangs come one after the other, and each takes whole nodes. Each placement is compared with the exact
optimum on the nodes that were free (`simulator.bandwidth_model`). Bandwidth is modelled, times and calls are
measured. Prints the cells of the table of docs/placement.md; `--only` measures some of them.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import control_plane
from plane import api, gangs, kueue, manifests, volcano_gangs, waiting
from plane import hypernodes as plane_hypernodes
from plane import nodes as plane_nodes
from plane import plane as planes
from plane import site as sites
from simulator import bandwidth_model, cluster, cluster_specs

from railwright.fabric import hypernodes, names

COLUMNS = ("alone", "fields", "extender", "both")
SHAPE, RATIO = "coreweave", 7.0
BUSY = 30  # nodes that other jobs hold
GANGS = (8, 6, 4, 8)  # pods of each, in order of arrival; together 26 of the 34 free nodes
WAIT_SECONDS = 20.0  # then a gang counts as waiting, and is deleted
_GROUPS = "scheduling.k8s.io/v1beta1"
_QUOTA: Mapping[str, int] = {"nvidia.com/gpu": 512, **dict.fromkeys(manifests.RAILS, 64)}
_RESOURCES = {"type": "LeastAllocated", "resources": [{"name": "nvidia.com/gpu", "weight": 1}]}
_FULLEST = {"NodeResourcesFit": {"scoringStrategy": _RESOURCES}}  # of several domains of a key, take the fullest
_REQUESTS = "railwright_requests_total"


class PodGroupPlane(planes.Plane):
    """A control plane in which kube-scheduler places PodGroups."""

    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
    apis = (_GROUPS,)


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to have a scheduler place a gang."""

    scheduler: str
    name: str
    topology: str = "off"  # `gangTopology` of the policy that writes the row's field; off: it has none

    @property
    def kind(self) -> str:
        """Return the control plane that the row needs."""
        return {"kube-scheduler": "groups", "Volcano": "plain"}.get(
            self.scheduler, "balanced" if self.name == "balanced" else "plain"
        )


ROWS = (
    Row("kube-scheduler", "no group"),
    Row("kube-scheduler", "group"),
    Row("Kueue", "no topology"),
    Row("Kueue", "leaf", "preferred"),
    Row("Kueue", "hostname", "preferred"),
    Row("Kueue", "balanced", "preferred"),
    Row("Volcano", "none"),
    Row("Volcano", "soft", "preferred"),
    Row("Volcano", "hard", "required"),
)


async def main(only: str, patterns: int) -> int:
    """Measure the cells whose `scheduler/row/by` begins with `only`. Return 0."""
    for kind, plane_class in (("groups", PodGroupPlane), ("plain", planes.Plane), ("balanced", planes.Plane)):
        chosen = [
            (row, by)
            for row in ROWS
            for by in COLUMNS
            if row.kind == kind
            and (row.topology != "off" or by in {"alone", "extender"})  # without a constraint there are no fields
            and f"{row.scheduler}/{row.name}/{by}".startswith(only)
        ]
        if not chosen:
            continue
        kueue.CONFIGURATION["featureGates"]["TASBalancedPlacement"] = kind == "balanced"  # before Kueue starts
        async with control_plane.run(plane_class) as plane:
            await _measure(plane, chosen, patterns)
    return 0


async def _measure(plane: planes.Plane, cells: Sequence[tuple[Row, str]], patterns: int) -> None:
    spec = cluster_specs.build_from_catalogue(SHAPE, (RATIO,))
    made = plane_nodes.Nodes(plane.api)
    await asyncio.gather(
        *(made.make(node.metadata.name, rails=gangs.ONE_EACH, labels=dict(node.metadata.labels)) for node in spec.nodes)
    )
    if any(row.scheduler == "Volcano" for row, _ in cells):
        await _make_hyper_nodes(plane.api, spec)
    if any(row.scheduler == "Kueue" for row, _ in cells):
        await plane.controllers.start("kueue")
    for row, by in cells:
        await _measure_cell(plane, spec, row, by, patterns)


async def _make_hyper_nodes(client: api.Api, spec: cluster_specs.ClusterSpec) -> None:
    leaves: dict[str, dict[str, None]] = {}
    for node in spec.nodes:
        leaves.setdefault(node.metadata.labels[manifests.SPINE], {})[node.metadata.labels[manifests.LEAF]] = None
    await plane_hypernodes.HyperNodes(client).tree(**{spine: list(members) for spine, members in leaves.items()})


async def _measure_cell(plane: planes.Plane, spec: cluster_specs.ClusterSpec, row: Row, by: str, patterns: int) -> None:
    namespace = f"{row.scheduler}-{row.name}-{by}".lower().replace(" ", "-")
    await plane.make_namespace(namespace)
    cell = _Cell(plane, spec, row, by, namespace)
    async with cell.installed():
        for seed in range(1, patterns + 1):
            await cell.run(seed)
            await plane.remove_pods(namespace)
    await plane.remove_namespace(namespace)
    print(f"{row.scheduler} / {row.name} / {by}: {cell.format()}", flush=True)


def _describe_leaves(model: cluster.Cluster, slots: bandwidth_model.Slots, hosts: Sequence[int]) -> str:
    """Return the pods, free nodes and nodes of each leaf, in the order in which ranks go through them."""
    runs = [(chain, len(list(pods))) for chain, pods in itertools.groupby(model.hosts[host].chain for host in hosts)]
    return " + ".join(f"{pods} ({slots.leaves[chain]} of {model.domains[chain[0]].size})" for chain, pods in runs)


class _Cell:
    """The gangs of one cell of the table."""

    def __init__(self, plane: planes.Plane, spec: cluster_specs.ClusterSpec, row: Row, by: str, namespace: str) -> None:
        self._plane, self._spec, self._row, self._namespace = plane, spec, row, namespace
        self._by = by
        self._has_fields, self._has_extender = by in {"fields", "both"}, by in {"extender", "both"}
        self._site = sites.Site(plane)
        self._values: list[tuple[int, float, float]] = []  # pods, modelled bandwidth, the optimum's
        self._seconds: list[float] = []
        self._waiting = self._calls = 0

    def format(self) -> str:
        """Return the figures of all gangs as the page has them."""
        best = sum(pods * optimal for pods, _, optimal in self._values)
        gangs_count = len(self._values) + self._waiting
        calls = round(self._calls / max(1, gangs_count))
        share = sum(pods * value for pods, value, _ in self._values) / best if best else None
        parts = [
            "none placed" if share is None else f"{share:.2f}",
            *([f"{self._waiting} of {gangs_count} wait"] if self._waiting else []),
            *([f"{calls} calls"] if calls else []),
            *([f"{statistics.median(self._seconds):.1f} s"] if self._seconds else []),
        ]
        return ", ".join(parts)

    @contextlib.asynccontextmanager
    async def installed(self) -> AsyncIterator[None]:
        """Run what of railwright the cell has, with its scheduler configured, for the length of a block."""
        async with sites.running(self._plane) as site:
            self._site = site
            if self._row.scheduler == "Kueue":
                await self._make_queue()
            if self._has_extender or self._has_fields:
                await site.policy(self._build_policy())
            if self._has_extender:
                await site.start_extender()
            await self._configure(site.proxy.url)
            if self._has_fields:
                await site.start_webhook()
                await site.register(self._namespace)
                await waiting.wait(self._has_written, describe="the topology to be written")
            yield
            if self._row.scheduler == "Kueue":
                await self._remove_queue()

    def _build_policy(self) -> str:
        is_volcano = self._row.scheduler == "Volcano" and self._row.topology != "off"
        domains = [*hypernodes.LEVELS[:2]] if is_volcano else [manifests.LEAF, manifests.SPINE]
        if self._row.topology == "required":  # the widest is the leaf, as in the constraint by hand
            del domains[1:]
        placement = {
            "oversubscription": [RATIO] * len(domains),
            "gangTopology": self._row.topology if self._has_fields else "off",
            "domains": domains,
        }
        return manifests.policy({"rails": manifests.fabric(2, placement=placement)})

    async def _configure(self, url: str) -> None:
        if self._row.scheduler != "Volcano":
            extenders = [gangs.entry(url)] if self._has_extender else []
            await self._plane.schedulers.kube(*extenders, plugins=_FULLEST)
            return
        plugins = plane_hypernodes.AWARE if self._row.topology != "off" else ()
        conf = volcano_gangs.conf(url, plugins=plugins)
        if not self._has_extender:
            conf["tiers"][-1]["plugins"] = list(plugins)
            conf["tiers"] = [tier for tier in conf["tiers"] if tier["plugins"]]
        await self._plane.schedulers.volcano(conf=conf)

    async def _make_queue(self) -> None:
        levels = (manifests.SPINE, manifests.LEAF) + (() if self._row.name == "leaf" else (kueue.HOSTNAME,))
        name, has_topology = self._namespace, self._row.topology != "off"
        await kueue.make_queue(
            self._plane.api,
            name,
            name,
            *([kueue.topology(name, *levels)] if has_topology else []),
            kueue.flavor(name, {"type": "kwok"}, name if has_topology else ""),
            kueue.cluster_queue(name, kueue.group([name], _QUOTA)),
        )

    async def _remove_queue(self) -> None:
        for kind in ("LocalQueue", "ClusterQueue", "ResourceFlavor", "Topology"):
            space = self._namespace if kind == "LocalQueue" else None
            await self._plane.api.delete(f"{kueue.VERSION}/{kind}", self._namespace, space)

    async def _has_written(self) -> bool:
        made = await self._plane.api.create(self._build_job("trial", 4), namespace=self._namespace, dry_run=True)
        spec = made["spec"]
        template = spec["tasks"][0]["template"] if "tasks" in spec else spec["template"]
        record = json.loads(template["metadata"]["annotations"].get(names.TOPOLOGY, "{}"))
        assert record.get("fields") or record.get("annotations"), record
        return True

    def _build_job(self, name: str, size: int) -> api.Object:
        """Return the gang. Without `fields`, the row's constraint is written by hand."""
        has_constraint = self._row.topology != "off" and not self._has_fields
        if self._row.scheduler == "Volcano":
            constraint = {"mode": self._row.name, "highestTierAllowed": 1}
            return volcano_gangs.job(name, size, **({"networkTopology": constraint} if has_constraint else {}))
        job = gangs.job(name, size)
        if self._row.scheduler == "Kueue":
            job["metadata"]["labels"] = {kueue.QUEUE_NAME: self._namespace}
            if has_constraint:
                annotations = {f"{kueue.POD_SET}preferred-topology": manifests.LEAF}
                job["spec"]["template"]["metadata"]["annotations"] = annotations
        elif self._row.name == "group":
            job["spec"]["scheduling"] = {"schedulingPolicy": {"gang": {}}}
        return job

    async def run(self, seed: int) -> None:
        """Place the gangs on a cluster where other jobs hold nodes drawn from the seed."""
        model = cluster.Cluster(self._spec)
        number_of = {host.name: number for number, host in enumerate(model.hosts)}
        demand = model.build_demand(8)
        busy = random.Random(seed).sample(sorted(number_of), BUSY)  # noqa: S311 - repeatable, not secret
        await gangs.hold(self._plane.api, self._namespace, *busy)
        for name in busy:
            model.start_pod(number_of[name], demand)
        for index, size in enumerate(GANGS):
            hosts = await self._place(f"gang-{seed}-{index}", size)
            free = model.get_capacity(demand).snapshot()
            slots = bandwidth_model.count_slots(model, free, 0.0)
            title = f"  {self._namespace}, pattern {seed}, gang of {size}"
            if hosts is None:
                print(f"{title}: waits; free nodes of leaves: {sorted(slots.leaves.values())}", flush=True)
                continue
            placed = [number_of[name] for name in hosts]
            value = bandwidth_model.assess_gang(model, demand, bandwidth_model.grant_ranks(free, placed)).total
            best = bandwidth_model.find_best(model, free, size)
            assert best is not None, "it was placed"
            self._values.append((size, value, best.value))
            described = [_describe_leaves(model, slots, chosen) for chosen in (placed, best.hosts)]
            print(f"{title}: {value:.2f} on {described[0]}; optimum {best.value:.2f} on {described[1]}", flush=True)
            for host in placed:
                model.start_pod(host, demand)

    async def _place(self, name: str, size: int) -> list[str] | None:
        """Return the nodes of a new gang by rank, or None if it waits; then it is deleted."""
        before = await self._count_calls()
        if self._row.name == "no group":
            pods = gangs.build_gang(name, size)
            labels, began = f"{gangs.GROUP}={name}", time.monotonic()
            await gangs.release(self._plane.api, self._namespace, pods)
        else:
            is_volcano = self._row.scheduler == "Volcano"
            labels = f"{gangs.VOLCANO_JOB if is_volcano else gangs.JOB_NAME}={name}"
            began = time.monotonic()
            await self._plane.api.create(self._build_job(name, size), namespace=self._namespace)
        try:
            bound = await gangs.bound(self._plane.api, self._namespace, size, labels, seconds=WAIT_SECONDS)
        except AssertionError:
            self._waiting += 1
            await self._remove(name, labels)
            return None
        finally:
            self._calls += await self._count_calls() - before
        self._seconds.append(time.monotonic() - began)
        return [gangs.node_of(pod) for pod in bound]

    async def _remove(self, name: str, labels: str) -> None:
        kind = manifests.VOLCANO_JOB if self._row.scheduler == "Volcano" else "batch/v1/Job"
        if self._row.name != "no group":
            await self._plane.api.delete(kind, name, self._namespace)

        async def are_gone() -> bool:
            listed = await self._plane.api.list("Pod", self._namespace, labels=labels)
            for pod in listed:
                await self._plane.api.delete("Pod", pod["metadata"]["name"], self._namespace, grace=0)
            return not listed

        await waiting.wait(are_gone, describe=f"the pods of {name} to be gone")

    async def _count_calls(self) -> int:
        return int(await sites.metric(self._site.extender, _REQUESTS)) if self._site.extender else 0
