"""A Volcano training job with one label: admitted, gang-placed and annotated. test_seeds.py compares the pods."""

import asyncio
import json

import pytest_asyncio
import yaml
from admitting import EXAMPLES
from plane import conditions, gangs, manifests, volcano
from plane import site as sites
from plane.manifests import LEAF, SPINE

RAILS = tuple(f"nvidia.com/mlx5_{rail}" for rail in range(4))
POLICY = (EXAMPLES / "360-roce" / "policy.yaml").read_text()
INJECTION = "railwright.io/injection"
# leaf: (nodes, of them taken by other jobs). One leaf holds the gang; smaller, larger and fuller ones only parts.
LEAVES = {"leaf-small": (4, 0), "leaf-right": (8, 0), "leaf-large": (12, 6), "leaf-fuller": (10, 7)}
# Volcano's own opinion only, emptier nodes first: binpack would pull the other way
OPINION = {"without": ("binpack",)}


@pytest_asyncio.fixture(loop_scope="session")
async def prod(plane, nodes):
    """Yield the namespace prod of the seed's manifests, with its four networks."""
    await plane.make_namespace("prod")
    for lan in range(2, 6):
        await plane.api.create(manifests.network(f"rdma-net-ipam-lan{lan}"), namespace="prod")
    yield "prod"
    await plane.remove_namespace("prod", whole=True)


async def arrange(plane, nodes, namespace: str) -> None:
    """Create the fabric. All leaves but leaf-right have more free CPU, so that Volcano's own plugins prefer them."""
    taken, full = {}, {"nvidia.com/gpu": 8, **dict.fromkeys(RAILS, 1)}
    jobs = []
    for leaf, (size, busy) in LEAVES.items():
        for index in range(size):
            name = f"{leaf}-{index:02}"
            jobs.append(nodes.make(name, labels={LEAF: leaf, SPINE: "spine-0"}))
            taken |= {name: full} if index < busy else {}
            taken |= {name: {"cpu": 96}} if leaf == "leaf-right" else {}
    await asyncio.gather(*jobs)
    await asyncio.gather(*(gangs.hold_devices(plane.api, namespace, name, limits=what) for name, what in taken.items()))


def job(name: str, replicas: int) -> dict:
    """Return the seed's job for railwright, at this size."""
    manifest = yaml.safe_load((EXAMPLES / "360-roce" / "job.yaml").read_text())
    manifest["metadata"] |= {"name": name, "namespace": "prod"}
    (task,) = manifest["spec"]["tasks"]
    task |= {"replicas": replicas, "minAvailable": replicas}
    manifest["spec"]["minAvailable"] = replicas
    return manifest


async def run(plane, name: str, count: int) -> list[dict]:
    """Create a job, wait until all its pods run, and return them."""
    await plane.api.create(job(name, count))
    return await conditions.wait_running(plane.api, "prod", f"{gangs.VOLCANO_JOB}={name}", count)


async def test_a_labelled_job_is_placed_in_the_leaf_with_room_for_all_pods(plane, nodes, prod, site, namespace):
    await arrange(plane, nodes, namespace)
    await site.install(POLICY, "prod")
    extender = await site.install_extender(POLICY)
    await site.guard("prod")  # the real admission policies let all of its pods pass

    # Without our extender first: where Volcano would put it.
    await plane.schedulers.volcano(volcano.conf(**OPINION))
    alone = await run(plane, "alone", 8)
    assert "leaf-right" not in gangs.list_leaves(alone), "the cluster is to be arranged so that Volcano prefers others"
    await plane.api.delete(manifests.VOLCANO_JOB, "alone", "prod")
    # The garbage collector looks for new kinds each 30 s, so on a new control plane it may not know the Job yet.
    await conditions.wait_gone(plane.api, manifests.VOLCANO_JOB, "alone", "prod")
    for pod in alone:
        await conditions.wait_gone(plane.api, "Pod", pod["metadata"]["name"], "prod")

    plugin = volcano.extender(f"{site.proxy.url}/volcano", managed=RAILS)
    await plane.schedulers.volcano(volcano.conf(plugin, **OPINION))
    ours = await run(plane, "ours", 8)
    assert set(gangs.list_leaves(ours)) == {"leaf-right"}
    assert len({pod["spec"]["nodeName"] for pod in ours}) == 8
    for pod in ours:
        record = json.loads(pod["metadata"]["annotations"][INJECTION])
        assert record["fabric"] == "roce"
    assert site.proxy.counts["/volcano/prioritize"] >= 8
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def test_volcano_calls_every_verb_of_the_example_configuration(plane, nodes, prod, site):
    conf = yaml.safe_load((EXAMPLES / "schedulers" / "volcano-scheduler.yaml").read_text())
    plugins = [plugin for tier in conf["tiers"] for plugin in tier["plugins"]]
    (arguments,) = [plugin["arguments"] for plugin in plugins if plugin["name"] == "extender"]
    arguments["extender.urlPrefix"] = f"{site.proxy.url}/volcano"
    arguments["extender.predicateVerb"] = "predicate"  # left out there for its cost; it is to work as well
    for index in range(2):
        await nodes.make(f"gpu-{index}", labels={LEAF: "a"})
    await site.install(POLICY, "prod")
    extender = await site.install_extender(POLICY)
    await plane.schedulers.volcano(conf)
    await run(plane, "asks", 2)
    for verb in ("prioritize", "allocate", "session-close", "predicate"):
        assert site.proxy.counts[f"/volcano/{verb}"] >= 1, verb
        assert await sites.read_metric(extender, "railwright_requests_total", path=f"/volcano/{verb}", outcome="ok")
