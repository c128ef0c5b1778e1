"""A Volcano training job with one label: admitted, gang-placed and annotated. test_seeds.py compares its pods."""

import asyncio
import json

import pytest_asyncio
import yaml
from admitting import EXAMPLES
from plane import site as sites
from plane import volcano, waiting

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
RAILS = tuple(f"nvidia.com/mlx5_{rail}" for rail in range(4))
PLACEMENT, INJECTION = (f"railwright.io/{key}" for key in ("placement", "injection"))
# Names of their own: Volcano's controller may lose a job that is created again under a name it is still cleaning up.
ALONE, OURS = "seed-alone", "seed-ours"
# leaf: (nodes, of them taken by other jobs). One leaf holds the gang; smaller, larger and fuller ones only parts.
LEAVES = {"leaf-small": (4, 0), "leaf-right": (8, 0), "leaf-large": (12, 6), "leaf-fuller": (10, 7)}
# Volcano's own opinion only: emptier nodes first. No binpack, which would pull the other way.
CONF = volcano.conf()
for tier in CONF["tiers"]:
    tier["plugins"] = [plugin for plugin in tier["plugins"] if plugin["name"] != "binpack"]


def with_extender(url: str) -> dict:
    plugin = {"name": "extender", "arguments": volcano.extender(f"{url}/volcano", managed=RAILS)}
    return {**CONF, "tiers": [*CONF["tiers"], {"plugins": [plugin]}]}


@pytest_asyncio.fixture(loop_scope="session")
async def prod(plane, nodes):
    """Namespace prod, as the seed's manifests name it, with its four networks."""
    await plane.make_namespace("prod")
    for lan in range(2, 6):
        await plane.apply(
            "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n"
            f"metadata: {{name: rdma-net-ipam-lan{lan}}}\nspec: {{config: '{{}}'}}",
            namespace="prod",
        )
    yield "prod"
    await plane.remove_namespace("prod")
    await waiting.wait(lambda: is_gone(plane, "prod"), describe="namespace prod to be gone", seconds=60)


async def is_gone(plane, name):
    return await plane.api.get_or_none("Namespace", name) is None


def filler(name: str, node: str, resources: dict) -> dict:
    container = {"name": "c", "image": "i", "resources": {"requests": resources, "limits": resources}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [container]},
    }


async def arrange(plane, nodes, namespace: str) -> None:
    """Create the fabric. All leaves but leaf-right have more free CPU, so that Volcano's own plugins prefer them."""
    taken, full = {}, {"nvidia.com/gpu": "8", **dict.fromkeys(RAILS, "1")}
    jobs = []
    for leaf, (size, busy) in LEAVES.items():
        for index in range(size):
            name = f"{leaf}-{index:02}"
            jobs.append(nodes.make(name, labels={LEAF: leaf, SPINE: "spine-0"}))
            taken |= {name: full} if index < busy else {}
            taken |= {name: {"cpu": "96"}} if leaf == "leaf-right" else {}
    await asyncio.gather(*jobs)
    await asyncio.gather(
        *(plane.api.create(filler(f"on-{name}", name, what), namespace=namespace) for name, what in taken.items())
    )

    async def is_counted():
        pods = await plane.api.list("Pod", namespace)
        return sum(pod["status"].get("phase") == "Running" for pod in pods) == len(taken)

    await waiting.wait(is_counted, describe="the other jobs' pods to run")


def job(name: str, replicas: int) -> dict:
    """Return the seed's job as its users write it with railwright, at this size."""
    manifest = yaml.safe_load((EXAMPLES / "360-roce" / "job.yaml").read_text())
    manifest["metadata"] = {"name": name, "namespace": "prod"}
    (task,) = manifest["spec"]["tasks"]
    task |= {"replicas": replicas, "minAvailable": replicas}
    manifest["spec"]["minAvailable"] = replicas
    return manifest


async def running(plane, namespace: str, name: str, count: int) -> list[dict]:
    async def all_running():
        pods = await plane.api.list("Pod", namespace, labels=f"volcano.sh/job-name={name}")
        states = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
        assert list(states.values()) == ["Running"] * count, states
        return pods

    running_pods = await waiting.wait(all_running, seconds=60, describe=f"{count} running pods of job {name}")
    return sorted(running_pods, key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))


def leaves_of(pods: list[dict]) -> set[str]:
    return {pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods}


async def test_a_labelled_job_lands_on_the_leaf_that_holds_it(
    plane, nodes, prod, site, namespace, schedulers, extender_proxy
):
    await arrange(plane, nodes, namespace)
    await site.policy((EXAMPLES / "360-roce" / "policy.yaml").read_text())
    _, extender = await asyncio.gather(site.start_webhook(), site.start_extender())
    extender_proxy.backend = extender.port
    await site.register("prod")
    await site.guard("prod")  # the real admission policies let all of its pods pass

    # Without our extender first: where Volcano would put it.
    await schedulers.volcano(conf=CONF)
    await plane.api.create(job(ALONE, 8))
    alone = await running(plane, "prod", ALONE, 8)
    assert "leaf-right" not in leaves_of(alone), "the cluster is to be arranged so that Volcano prefers other leaves"
    await remove_job(plane, ALONE)

    await schedulers.volcano(conf=with_extender(extender_proxy.url))
    await plane.api.create(job(OURS, 8))
    ours = await running(plane, "prod", OURS, 8)
    assert leaves_of(ours) == {"leaf-right"}
    assert len({pod["spec"]["nodeName"] for pod in ours}) == 8
    for pod in ours:
        placement = json.loads(pod["metadata"]["annotations"][PLACEMENT])
        assert placement["node"] == pod["spec"]["nodeName"]
        assert placement["rails"] == ["rail0", "rail1", "rail2", "rail3"]
        assert placement["domains"] == ["leaf-right", "spine-0"]
        record = json.loads(pod["metadata"]["annotations"][INJECTION])
        assert record["fabric"] == "roce"
    assert extender_proxy.counts["/volcano/prioritize"] >= 8
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def remove_job(plane, name: str) -> None:
    await plane.api.delete("batch.volcano.sh/v1alpha1/Job", name, "prod")

    async def nothing_left():
        pods = await plane.api.list("Pod", "prod", labels=f"volcano.sh/job-name={name}")
        return not pods and await plane.api.get_or_none("batch.volcano.sh/v1alpha1/Job", name, "prod") is None

    # The garbage collector looks for new kinds each 30 s, so on a new control plane it may not know the Job yet.
    await waiting.wait(nothing_left, seconds=90, describe=f"job {name} and its pods to be gone")


async def test_volcano_calls_every_verb_of_the_example_configuration(
    plane, nodes, prod, site, schedulers, extender_proxy
):
    conf = yaml.safe_load((EXAMPLES / "schedulers" / "volcano-scheduler.yaml").read_text())
    plugins = [plugin for tier in conf["tiers"] for plugin in tier["plugins"]]
    (arguments,) = [plugin["arguments"] for plugin in plugins if plugin["name"] == "extender"]
    arguments["extender.urlPrefix"] = f"{extender_proxy.url}/volcano"
    arguments["extender.predicateVerb"] = "predicate"  # left out there for its cost; it is to work as well
    for index in range(2):
        await nodes.make(f"gpu-{index}", labels={LEAF: "a"})
    await site.policy((EXAMPLES / "360-roce" / "policy.yaml").read_text())
    await site.start_webhook()
    await site.register("prod")
    extender = await site.start_extender()
    extender_proxy.backend = extender.port
    await schedulers.volcano(conf=conf)
    await plane.api.create(job(OURS, 2))
    await running(plane, "prod", OURS, 2)
    for verb in ("prioritize", "allocate", "session-close", "predicate"):
        assert extender_proxy.counts[f"/volcano/{verb}"] >= 1, verb
        assert await sites.metric(extender, "railwright_extender_requests_total", path=f"/volcano/{verb}", outcome="ok")
