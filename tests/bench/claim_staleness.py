"""Measures how old the extender's view of claims is while kube-scheduler places many gangs.

Real etcd, API server, controllers and kube-scheduler (tests/integration), kwok's nodes with ResourceSlices. The
extender's handlers and watches run in this process, so that each filter request can be compared with what was taken:
kube-scheduler handles pod after pod, and therefore every pod whose last filter request came before this one has its
devices already. A validating webhook for the status of claims notes when an allocation is written.
Writes build/bench/claim-view.json.
"""

import asyncio
import base64
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import claimed
import control_plane
import devices
import machine
import msgspec
import yaml
from aiohttp import web
from plane import gangs, waiting
from plane import nodes as plane_nodes
from plane import plane as planes
from plane import site as sites

from extender import decider, kube_scheduler, scheduling_requests
from extender import state as states
from railwright.cluster import sources
from railwright.fabric.claims import objects
from railwright.fabric.placement.state import gang_status
from railwright.serving import turns

GANGS, SIZE, LEAF_NODES = 16, 8, 8
NAMESPACE = "bench"
_RAILS = {"low": (0, 1), "high": (2, 3)}  # two pods fill a node


class FilterCall(msgspec.Struct):
    """A filter request, and the pods that the extender knew when it arrived."""

    pod: str
    offered: frozenset[str]
    allocated: dict[str, str]  # pod -> node whose devices its claims hold, or to which it is bound
    inferred: frozenset[str]  # other pods that count as placed, by kube-scheduler's offers or our own scores


class Extender:
    """The extender's handlers with its watches, and records of what the watches had shown."""

    def __init__(self) -> None:
        self.state = states.State(assume_seconds=60)
        self.calls: list[FilterCall] = []
        self.written: dict[str, float] = {}  # claim -> when its allocation was written
        self.seen: dict[str, float] = {}  # claim -> when the cluster state had it
        self.origin: sources.Sources | None = None
        self.handlers: kube_scheduler.KubeScheduler | None = None

    async def connect(self, kubeconfig: str) -> None:
        """Start the watches."""
        rows = [
            msgspec.structs.replace(row, sink=_RecordingClaims(row.sink, self))
            if row.kind.snapshot_kind == "ResourceClaim"
            else row
            for row in states.list_watches(self.state)
        ]
        self.origin = await sources.connect(
            kubeconfig=kubeconfig, snapshot=None, policy=None, watches=rows, restarted=lambda *_: None
        )
        store = self.origin.store
        store.subscribe(lambda _: self.state.apply_policy(store.current))
        deciding = decider.Decider(
            self.state,
            lambda: store.current,
            clock=time.monotonic,
            observe=lambda *_: None,
            count_rejected=lambda *_: None,
        )
        self.handlers = kube_scheduler.KubeScheduler(deciding)

    def is_synced(self) -> bool:
        """Return whether the watches have delivered every object."""
        return self.origin is not None and not self.origin.cache_problem() and self.state.cluster.has_slices

    async def filter(self, request: web.Request) -> web.Response:
        """POST /scheduler/filter."""
        assert self.handlers is not None
        assert self.origin is not None
        body = await request.read()
        tree = msgspec.json.decode(body)
        cluster = self.state.cluster
        answer = self.handlers.filter(body)
        placed = {pod.key: node for pod in cluster.pods.values() if (node := gang_status.find_node(pod, cluster))}
        pod, nodes, *_ = kube_scheduler.read_arguments(body)
        asked = scheduling_requests.build_kube_request(pod, nodes, self.origin.store.current, self.state)
        assert asked is not None
        inferred = self.handlers.list_unseen(asked)
        self.calls.append(
            FilterCall(
                pod=f"{tree['Pod']['metadata']['namespace']}/{tree['Pod']['metadata']['name']}",
                offered=frozenset(tree["NodeNames"]),
                allocated=placed,
                inferred=frozenset(pod.key for pod in inferred),
            )
        )
        return web.Response(body=answer, content_type="application/json")

    async def prioritize(self, request: web.Request) -> web.Response:
        """POST /scheduler/prioritize."""
        assert self.handlers is not None
        answer = turns.complete(self.handlers.prioritize(await request.read()))
        return web.Response(body=answer, content_type="application/json")

    async def review(self, request: web.Request) -> web.Response:
        """Note when the allocation of a claim is written."""
        review = msgspec.json.decode(await request.read())["request"]
        if review["object"].get("status", {}).get("allocation"):
            self.written.setdefault(f"{review['namespace']}/{review['name']}", time.monotonic())
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**answer, "response": {"uid": review["uid"], "allowed": True}})


class _RecordingClaims:
    """The sink of claims, which also notes when an allocation is known."""

    def __init__(self, sink: Any, extender: Extender) -> None:
        self._sink, self._extender = sink, extender

    def replace(self, listed: Sequence[objects.ResourceClaim]) -> None:
        self._sink.replace(listed)

    def upsert(self, claim: objects.ResourceClaim) -> None:
        self._sink.upsert(claim)
        if claim.results:
            self._extender.seen.setdefault(claim.metadata.full_name, time.monotonic())

    def remove(self, claim: objects.ResourceClaim) -> None:
        self._sink.remove(claim)


async def main() -> int:
    """Measure, print a table, and write the results."""
    options = machine.parse_options(__doc__, gangs=GANGS)
    async with control_plane.run() as plane:
        result = await _measure(plane, options.gangs)
    result = machine.write_results("claim-view", gangs=options.gangs, size=SIZE, **result)
    print(json.dumps(result, indent=1))
    return 0


async def _measure(plane: planes.Plane, count: int) -> dict[str, Any]:
    nodes = count * SIZE // 2
    await _prepare(plane, nodes)
    site = sites.Site(plane)
    await site.prepare()
    await site.policy(yaml.safe_dump(claimed.build_document()))
    extender = Extender()
    await extender.connect(site.kubeconfig("extender").partition("=")[2])
    assert extender.origin is not None
    tasks = [asyncio.create_task(task()) for task in extender.origin.tasks]
    try:
        url = await _serve(plane, extender)
        await waiting.wait(extender.is_synced, describe="the watches to be in sync")
        await plane.schedulers.kube(gangs.entry(url, ignored=True))
        return await _place(plane, extender, count)
    finally:
        for task in tasks:
            task.cancel()
        if extender.origin.client is not None:
            await extender.origin.client.close()


async def _prepare(plane: planes.Plane, count: int) -> None:
    for tree in (devices.GPU_CLASS, devices.NIC_CLASS):
        await plane.api.create(tree)
    made = plane_nodes.Nodes(plane.api)
    for number in range(count):
        name = f"n-{number:03}"
        labels = {gangs.LEAF: f"leaf-{number // LEAF_NODES}", gangs.SPINE: "s0"}
        await made.make_with_slices(name, labels=labels)
    await plane.make_namespace(NAMESPACE)
    for name, rails in _RAILS.items():
        await plane.api.create(claimed.build_template_tree(name, rails), namespace=NAMESPACE)


async def _serve(plane: planes.Plane, extender: Extender) -> str:
    """Serve the extender, and the webhook for claims over TLS. Returns the extender's URL."""
    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/scheduler/filter", extender.filter)
    application.router.add_post("/scheduler/prioritize", extender.prioritize)
    application.router.add_post("/claims", extender.review)
    runner = web.AppRunner(application)
    await runner.setup()
    plain = web.TCPSite(runner, "127.0.0.1", 0)
    await plain.start()
    plane.certificates.server("claims-serving")
    secure = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=plane.certificates.serving("claims-serving"))
    await secure.start()
    ports = [address[1] for address in runner.addresses]
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["resourceclaims/status"],
    }
    webhook = {
        "name": "claims.railwright.io",
        "clientConfig": {
            "url": f"https://127.0.0.1:{ports[1]}/claims",
            "caBundle": base64.b64encode(plane.certificates.authority.certificate_pem).decode(),
        },
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    await plane.api.create({**kind, "metadata": {"name": "bench-claims"}, "webhooks": [webhook]})
    return f"http://127.0.0.1:{ports[0]}"


async def _place(plane: planes.Plane, extender: Extender, count: int) -> dict[str, Any]:
    """Release all gangs at once, and compare each filter request with what was taken."""
    pods = [
        _build_pod(f"g{gang}-{rank}", sorted(_RAILS)[gang % 2], f"g{gang}")
        for gang in range(count)
        for rank in range(SIZE)
    ]
    gate = {"schedulingGates": [{"name": "bench/queue"}]}
    for pod in pods:
        await plane.api.create({**pod, "spec": {**pod["spec"], **gate}}, namespace=NAMESPACE)
    began = time.monotonic()
    removal = {"spec": {"schedulingGates": None}}
    await asyncio.gather(*(plane.api.patch("Pod", pod["metadata"]["name"], removal, NAMESPACE) for pod in pods))
    bound = await gangs.bound(plane.api, NAMESPACE, len(pods), seconds=300)
    seconds = time.monotonic() - began
    nodes = {f"{NAMESPACE}/{pod['metadata']['name']}": gangs.node_of(pod) for pod in bound}
    await asyncio.sleep(1.0)
    leaves: dict[str, set[int]] = {}
    for pod, node in nodes.items():
        leaves.setdefault(pod.rpartition("-")[0], set()).add(int(node[2:]) // LEAF_NODES)
    lags = sorted(
        extender.seen[claim] - written for claim, written in extender.written.items() if claim in extender.seen
    )
    return {
        "seconds": round(seconds, 2),
        "filter_requests": len(extender.calls),
        "gangs_on_one_leaf": sum(1 for used in leaves.values() if len(used) == 1),
        "write_to_view_ms": _describe([1000 * lag for lag in lags]),
        **_count_stale(extender.calls, nodes),
    }


def _count_stale(calls: Sequence[FilterCall], nodes: Mapping[str, str]) -> dict[str, Any]:
    """Count the pods that had devices when a filter request came, and of which nothing was known."""
    last = {call.pod: number for number, call in enumerate(calls)}
    unseen, unseen_and_offered, uncounted = [], 0, []
    for number, call in enumerate(calls):
        taken = {pod for pod, decided in last.items() if decided < number}
        unknown = taken - call.allocated.keys()
        unseen.append(len(unknown))
        uncounted.append(len(unknown - call.inferred))
        unseen_and_offered += any(nodes[pod] in call.offered for pod in unknown)
    return {
        "requests_with_unseen_pods": sum(1 for count in unseen if count),
        "unseen_pods": _describe(unseen),
        "requests_with_uncounted_pods": sum(1 for count in uncounted if count),  # neither seen nor inferred
        "uncounted_pods": _describe(uncounted),
        "requests_that_offered_an_unseen_pods_node": unseen_and_offered,
    }


def _describe(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "p99": round(machine.find_quantile(values, 0.99), 1),
        "max": round(max(values), 1),
    }


def _build_pod(name: str, template: str, gang: str) -> dict[str, Any]:
    labels = {"railwright.io/fabric": claimed.FABRIC, gangs.GROUP: gang}
    tree = gangs.pod(name, gpus=0, rails={}, labels=labels)
    tree["spec"]["resourceClaims"] = [{"name": "railwright", "resourceClaimTemplateName": template}]
    tree["spec"]["containers"][0]["resources"] = {"claims": [{"name": "railwright"}], "limits": {gangs.RAILS[0]: "0"}}
    return tree


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
