"""One tenant sends the most expensive objects that it can, again and again, beside the reviews of others."""

import asyncio
import functools
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable

import admitting
import api_stub
import cost_budget
import latencies
import msgspec
import pytest
import shell
import working
from aiohttp import web

from railwright.fabric import views
from webhook import reviews

PER_SECOND = 100  # reviews of others
FILTERS_PER_SECOND = 20  # for pods of others, with all nodes
NODES = 5000
Send = Callable[[], Awaitable[shell.Answer]]
PATH = "/mutate/pods?timeout=5s"
BASE = admitting.pod()
SECONDS = 12.0  # beside the tenant, after half of it without
ATTEMPTS = 3
MOST = cost_budget.Size(values=reviews.MAX_POD_VALUES - 100)
FIELDS = {field.title: field for field in cost_budget.list_fields(views.Pod)}


POLICIES = {
    "InfiniBand": """{transport: infiniband, rails: [{name: rail0, resource: x.y/hca, device: mlx5_0}]}""",
    "RoCE with Multus": """
    transport: roce
    rails: [{name: rail0, network: prod/lan2, resource: a/b}, {name: rail1, network: prod/lan3, resource: a/c}]""",
    "claims": """
    transport: roce
    gpusPerNode: 8
    claims: {deviceClass: mrdma.google.com, acceleratorClass: gpu.nvidia.com, pairBy: none}
    rails: [{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]""",
}


def write_policy(folder, name: str) -> tuple[str, str]:
    """Write a policy with one fabric, and return the option that names it."""
    head = "apiVersion: railwright.io/v1alpha1\ndefaultFabric: f\nfabrics:\n  f: "
    (folder / "policy.yaml").write_text(head + POLICIES[name])
    return "--policy", str(folder / "policy.yaml")


def list_nodes() -> list[dict]:
    amounts = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8", "x.y/hca": "8"}
    return [
        {"metadata": {"name": f"n{number}", "uid": f"n{number}"}, "status": {"allocatable": amounts}}
        for number in range(NODES)
    ]


OBJECTS = {
    "/api/v1/nodes": list_nodes(),
    "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions": [
        {"metadata": {"name": name, "namespace": "prod", "uid": name}, "spec": {}} for name in ("lan2", "lan3")
    ],
}


def fill(title: str, size: cost_budget.Size = MOST, depth: int = 0) -> bytes:
    field = FIELDS[title]
    entries = cost_budget.build_entries(field, size, cost_budget.name_plainly, depth)
    return admitting.review(cost_budget.add(BASE, field.path, entries))


def list_worst() -> list[tuple[str, bytes]]:
    """Return the paths and reviews that take the webhook longest: those that are just accepted, and the largest."""
    templates = {f"n{number}": working.template(label="f") for number in range(2000)}
    cluster = {"metadata": {"name": "w"}, "spec": {"tasks": [{"name": n, "template": t} for n, t in templates.items()]}}
    row = working.kind("Job.batch.volcano.sh")
    annotated = {"k8s.v1.cni.cncf.io/networks": "a," * 131_000}
    return [
        (PATH, fill("spec.containers")),
        (PATH, fill("spec.initContainers")),
        (PATH, fill("spec.containers[].env")),
        (PATH, fill("spec.containers[].resources.claims")),
        (PATH, fill("spec.resourceClaims")),
        (PATH, fill("spec.volumes")),
        (PATH, fill("spec.containers[].env", cost_budget.LARGEST, -1)),
        (PATH, admitting.review(admitting.pod(annotations=annotated))),
        (PATH, admitting.review(admitting.pod(admitting.gpus(10**19)))),
        ("/mutate/workloads?timeout=5s", working.review(row, cluster)),
    ]


def build_claiming_pod(number: int) -> bytes:
    """Return the event of a pod that names 4,000 claim templates, with a new version each time."""
    claims = [
        {"name": f"railwright{n}", "resourceClaimTemplateName": f"railwright-x-1x1-{n:010x}"} for n in range(4000)
    ]
    metadata = {"name": "evil", "namespace": "tenant", "uid": "evil", "resourceVersion": str(number)}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c"}], "resourceClaims": claims}}
    return msgspec.json.encode({"type": "MODIFIED", "object": pod}) + b"\n"


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer as an API server with a pod of the tenant that changes each second."""
    if "watch" not in request.query:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": OBJECTS.get(request.path, [])})
    stream = web.StreamResponse()
    await stream.prepare(request)
    for number in range(2, 1000):
        if request.path == "/api/v1/pods":
            await stream.write(build_claiming_pod(number))
        await asyncio.sleep(1)
    return stream


@pytest.mark.parametrize("policy", POLICIES)
async def test_63_expensive_objects_do_not_delay_other_tenants(fault, tmp_path, started, policy):
    body, worst = admitting.review(BASE), list_worst()
    async with api_stub.serve(answer) as port:
        options = ("--kubeconfig", api_stub.kubeconfig(tmp_path, port), *write_policy(tmp_path, policy))
        server = await started("webhook", "--plain-http", *options)
        tenant, other = await server.open(), await server.open()

        async def review() -> shell.Answer:
            reply = await other.ask(body, path=PATH)
            assert json.loads(reply.body)["response"]["allowed"]
            return reply

        requests = [functools.partial(tenant.ask, attack, path=path) for path, attack in worst]
        for request in requests:
            await request()
        seen = await compare(server, review, PER_SECOND, itertools.cycle(requests))
        await tenant.close()
        await other.close()
    fault.saw(f"webhook, {policy}: {seen}")


async def test_63_expensive_pods_do_not_delay_other_schedulings(fault, tmp_path, started):
    """Each request for the tenant is about a pod of a new kind, of which the extender evaluates all nodes."""
    names = [node["metadata"]["name"] for node in OBJECTS["/api/v1/nodes"]]
    async with api_stub.serve(answer) as port:
        options = ("--kubeconfig", api_stub.kubeconfig(tmp_path, port), *write_policy(tmp_path, "InfiniBand"))
        server = await started("extender", "--plain-http", *options)
        tenant, other = await server.open(), await server.open()
        pod = build_scheduled(0)
        kinds = itertools.count(1)

        async def filter_nodes() -> shell.Answer:
            body = msgspec.json.encode({"Pod": pod, "NodeNames": names})
            reply = await other.ask(body, path="/scheduler/filter")
            assert json.loads(reply.body)["NodeNames"] == names
            return reply

        async def attack(verb: str, *, grouped: bool) -> shell.Answer:
            body = msgspec.json.encode({"Pod": build_scheduled(next(kinds), grouped=grouped), "NodeNames": names})
            return await tenant.ask(body, path=f"/scheduler/{verb}")

        requests = [
            functools.partial(attack, verb, grouped=grouped)
            for verb, grouped in itertools.product(("filter", "prioritize"), (False, True))
        ]
        await filter_nodes()
        seen = await compare(server, filter_nodes, FILTERS_PER_SECOND, itertools.cycle(requests))
        await tenant.close()
        await other.close()
    fault.saw(f"extender, {NODES:,} nodes: {seen}")


def build_scheduled(kind: int, *, grouped: bool = False) -> dict:
    """Return a pod that waits for a node, with as many containers as are decoded."""
    tree = admitting.pod(*[admitting.gpus(1, f"c{number}") for number in range(8 if kind == 0 else 600)])
    tree["metadata"]["uid"] = f"{kind}"
    tree["spec"]["containers"][0]["resources"]["requests"]["memory"] = str(kind + 1)
    if kind:
        for container in tree["spec"]["containers"][8:]:
            container["resources"] = {}
    if grouped:
        tree["spec"] |= {"schedulingGroup": {"podGroupName": "g"}, "priority": 5}
    return tree


async def compare(server, ask: Send, per_second: int, attacks: Iterable[Send]) -> str:
    """Send requests at a rate, alone and then beside the tenant's. Return what was seen.

    Other work of this machine makes some requests slower and none faster, so one attempt within the limit is enough.
    """
    took: list[float] = []
    not_ready: list[int] = []
    before = server.memory()
    for attempt in range(ATTEMPTS):
        calm = await measure_for(SECONDS / 2, ask, per_second)
        ended = asyncio.Event()
        tasks = [
            asyncio.create_task(send_all(attacks, took, ended)),
            asyncio.create_task(watch(server, not_ready, ended)),
        ]
        busy = await measure_for(SECONDS, ask, per_second)
        assert not any(task.done() for task in tasks), server.log[-3000:]
        ended.set()
        await asyncio.gather(*tasks)
        if latencies.find_p99(busy) < 0.02 + latencies.find_p99(calm):
            break
        assert attempt < ATTEMPTS - 1, (calm[-20:], busy[-20:], took)
    grown = (server.memory() - before) / 2**20
    assert not not_ready
    assert took
    assert grown < 64, "MiB"
    return (
        f"{len(busy):,} requests at {per_second}/s beside {len(took)} expensive ones of a tenant: none failed, "
        f"{latencies.describe(busy)} (without: {latencies.describe(calm)}), the slowest expensive one "
        f"{max(took) * 1000:.0f} ms, "
        f"{grown:+.0f} MiB, always ready; load of the machine {os.getloadavg()[0]:.1f}"
    )


async def measure_for(seconds: float, ask: Send, per_second: int) -> list[float]:
    end = time.monotonic() + seconds
    return await latencies.measure([ask], per_second, lambda: time.monotonic() >= end)


async def send_all(attacks: Iterable[Send], took: list[float], ended: asyncio.Event) -> None:
    """Send the expensive requests, one after the other; each is answered, also the last."""
    for attack in attacks:
        if ended.is_set():
            return
        sent = time.monotonic()
        reply = await attack()
        assert reply.status == 200, reply.body
        took.append(time.monotonic() - sent)
        await asyncio.sleep(1)


async def watch(server, not_ready: list[int], ended: asyncio.Event) -> None:
    while not ended.is_set():
        if (status := (await server.ops("/readyz")).status) != 200:
            not_ready.append(status)
        await asyncio.sleep(0.2)
