"""Expressions that others write neither hold up the extender nor keep its nodes from being feasible."""

import asyncio
import json
import time

import aiohttp
import dashboard_servers
import devices
import pytest
import shell
from placing import LEAF

SECONDS = 200.0  # on a busy machine a process of lower priority, as evaluates expressions, waits for most of its time
NODES = [f"n{number}" for number in range(4)]
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  roce:
    transport: roce
    rails: [{name: rail0, resource: example.com/nic}]
    placement: {rails: required}
"""
POD = {
    "metadata": {"name": "w", "namespace": "train", "uid": "w", "labels": {"railwright.io/fabric": "roce"}},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8", "example.com/nic": "1"}}}]},
}
UNDERSTOOD = 'device.driver == "dra.net" && device.attributes["dra.net"].rdmaDevice.matches("^rdmap[0-9]+s27$")'
OTHER = 'device.driver == "dra.net" && device.attributes["dra.net"].mac.matches("^absent$")'
NUMBERS = list(range(60))
# valid, and cheap in Kubernetes, which compiles the constant pattern once
COSTLY = f"{NUMBERS}.all(a, {NUMBERS}.all(b, a >= 0 && ('xy'.matches('(x|y|z|[a-z]){{1000}}') || a >= 0)))"


def write(folder, expression, *others):
    status = {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}}
    items = [devices.build_class("nic", expression, "example.com/nic"), *others]
    for name in NODES:
        node = {"metadata": {"name": name, "uid": name, "labels": {LEAF: "l0"}}, "status": status}
        items += [{"apiVersion": "v1", "kind": "Node", **node}, devices.build_slices(name)[0]]
    new = folder / "new.json"
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    new.replace(folder / "snapshot.json")
    (folder / "policy.yaml").write_text(POLICY)


async def filter_nodes(session, url):
    async with session.post(f"{url}/scheduler/filter", json={"Pod": POD, "NodeNames": NODES}) as answer:
        assert answer.status == 200
        return sorted((await answer.json())["NodeNames"] or ())


async def read_metric(session, url, state):
    async with session.get(f"{url}/metrics") as answer:
        text = await answer.text()
    [line] = [line for line in text.splitlines() if line.startswith(f'railwright_unknown_selectors{{state="{state}"}}')]
    return float(line.rpartition(" ")[2])


async def until_equal(read, expected):
    async def is_equal() -> bool:
        return await read() == expected

    await shell.until(is_equal, SECONDS)


@pytest.mark.timeout(900)
async def test_expressions_are_evaluated_and_a_costly_one_delays_no_request(tmp_path):
    selectors = [{"cel": {"expression": COSTLY}}]
    request = {"name": "r", "exactly": {"deviceClassName": "nic", "count": 1, "selectors": selectors}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "tenant", "uid": "t"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "tenant", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]},
    }
    write(tmp_path, OTHER)
    async with dashboard_servers.snapshot_extender(tmp_path) as (url, ops), aiohttp.ClientSession() as session:
        await until_equal(lambda: filter_nodes(session, url), [])
        await until_equal(lambda: read_metric(session, ops, "pending"), 0)
        write(tmp_path, UNDERSTOOD)
        await until_equal(lambda: filter_nodes(session, url), NODES)
        assert not await read_metric(session, ops, "unknown")
        write(tmp_path, f"{COSTLY} && {UNDERSTOOD}", template, pod)
        longest, end = 0.0, time.monotonic() + SECONDS
        while time.monotonic() < end and not await read_metric(session, ops, "unknown"):
            began = time.monotonic()
            assert await filter_nodes(session, url) == NODES
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.05)
        assert await read_metric(session, ops, "unknown")
        assert longest < 3, "seconds; it was 21 s"
