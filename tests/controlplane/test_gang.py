"""A Volcano training job with one label: admitted, injected, gang-placed and annotated by railwright."""

import asyncio
import json

import msgspec
import pytest
import pytest_asyncio
import yaml
from admitting import EXAMPLES
from plane import site as sites
from plane import volcano, waiting

from railwright.fabric import quantity
from railwright.fabric.multus import annotation

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
RAILS = tuple(f"nvidia.com/mlx5_{rail}" for rail in range(4))
PLACEMENT, INJECTION, NETWORKS = (f"railwright.io/{key}" for key in ("placement", "injection", "networks"))
# Names of their own: Volcano's controller may lose a job that is created again under a name it is still cleaning up.
BY_HAND, ALONE, OURS = "seed-by-hand", "seed-alone", "seed-ours"
MULTUS = "k8s.v1.cni.cncf.io/networks"
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


def job(name: str, replicas: int, source: str = "job.yaml", *, fabric: str = "roce") -> dict:
    """Return the seed's job as its users write it with railwright, at this size."""
    manifest = yaml.safe_load((EXAMPLES / "360-roce" / source).read_text())
    manifest["metadata"] = {"name": name, "namespace": "prod"}
    (task,) = manifest["spec"]["tasks"]
    task |= {"replicas": replicas, "minAvailable": replicas}
    manifest["spec"]["minAvailable"] = replicas
    labels = task["template"]["metadata"].get("labels")
    if labels:
        labels["railwright.io/fabric"] = fabric
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


def meaning(pod: dict) -> dict:
    """Return what a pod means to Kubernetes, Multus and NCCL, without what differs between any two pods."""
    containers = []
    for container in pod["spec"]["containers"]:
        env = {
            variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container.get("env", [])
        }
        env = json.loads(json.dumps(env).replace(pod["metadata"]["labels"]["volcano.sh/job-name"], "JOB"))
        resources = {
            kind: {name: quantity.parse(text) for name, text in container["resources"].get(kind, {}).items()}
            for kind in ("requests", "limits")
        }
        mounts = sorted((m["mountPath"]) for m in container.get("volumeMounts", []))
        rest = {key: value for key, value in container.items() if key not in ("env", "resources", "volumeMounts")}
        containers.append({**rest, "env": env, "resources": resources, "mounts": mounts})
    selected = annotation.parse(pod["metadata"]["annotations"].get(MULTUS, ""), pod["metadata"]["namespace"])
    annotations = {
        key for key in pod["metadata"]["annotations"] if not key.startswith("railwright.io/") and key != MULTUS
    }
    skipped = ("containers", "volumes", "nodeName", "hostname", "subdomain")
    spec = {key: value for key, value in pod["spec"].items() if key not in skipped}
    volumes = sorted(kind for volume in pod["spec"]["volumes"] for kind in volume if kind != "name")
    return {
        "spec": spec,
        "containers": containers,
        "volumes": volumes,
        "annotations": annotations,
        "networks": [(selection.namespace, selection.name, selection.interface) for selection in selected],
    }


async def test_a_labelled_job_is_admitted_as_written_by_hand_and_lands_whole_on_the_one_leaf_that_holds_it(
    plane, nodes, prod, site, namespace, schedulers, extender_proxy
):
    await arrange(plane, nodes, namespace)
    await site.policy((EXAMPLES / "360-roce" / "policy.yaml").read_text())
    _, extender = await asyncio.gather(site.start_webhook(), site.start_extender())
    extender_proxy.backend = extender.port
    await site.register("prod")
    await site.guard("prod")  # the real admission policies let all of its pods pass

    # The hand-written job first, alone and without us: what a pod should be, and where Volcano would put it.
    await schedulers.volcano(conf=CONF)
    await plane.api.create(job(BY_HAND, 8, "handwritten.yaml"))
    by_hand = await running(plane, "prod", BY_HAND, 8)
    assert "leaf-right" not in leaves_of(by_hand), "the cluster is to be arranged so that Volcano prefers other leaves"
    await remove_job(plane, BY_HAND)

    # The same job with one label and no network part, still without our extender: not placed so either.
    await plane.api.create(job(ALONE, 8))
    alone = await running(plane, "prod", ALONE, 8)
    assert "leaf-right" not in leaves_of(alone)
    await remove_job(plane, ALONE)

    await schedulers.volcano(conf=with_extender(extender_proxy.url))
    await plane.api.create(job(OURS, 8))
    ours = await running(plane, "prod", OURS, 8)
    assert leaves_of(ours) == {"leaf-right"}
    assert len({pod["spec"]["nodeName"] for pod in ours}) == 8
    for admitted, written in zip(ours, by_hand, strict=True):
        assert meaning(admitted) == meaning(written)
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


async def test_the_derived_environment_is_admitted_by_the_real_api_server(plane, nodes, prod, site):
    await site.policy((EXAMPLES / "360-roce" / "policy.yaml").read_text())
    await site.start_webhook()
    await site.register("prod")
    await nodes.make("gpu-0")
    await plane.api.create(job("derived", 1, fabric="roce-derived"))
    (pod,) = await running(plane, "prod", "derived", 1)
    env = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}
    assert env["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert env["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"
    assert "NCCL_IB_GID_INDEX" not in env


async def test_infiniband_pods_get_devices_and_environment_and_no_networks(plane, nodes, prod, site):
    folder = EXAMPLES / "360-infiniband"
    await site.policy((folder / "policy.yaml").read_text())
    await site.start_webhook()
    await site.register("prod")
    await site.guard("prod")
    await nodes.make("gpu-0")
    pods = {}
    for source in ("handwritten", "job"):
        manifest = yaml.safe_load((folder / f"{source}.yaml").read_text())
        name = f"seed-{source}"
        manifest["metadata"] = {"name": name, "namespace": "prod"}
        await plane.api.create(manifest)
        (pods[source],) = await running(plane, "prod", name, 1)
        await remove_job(plane, name)
    assert meaning(pods["job"]) == meaning(pods["handwritten"])
    assert MULTUS not in pods["job"]["metadata"]["annotations"]


@pytest.mark.parametrize("back", ["within the gang", "after it"])
async def test_a_gang_completes_though_the_extender_is_killed_in_the_middle_and_nothing_is_booked_twice(
    plane, nodes, prod, site, schedulers, extender_proxy, back
):
    one_each = dict.fromkeys(RAILS, 1)
    for leaf in ("a", "b"):
        for index in range(8):
            await nodes.make(f"{leaf}-{index:02}", rails=one_each, labels={LEAF: leaf, SPINE: "s"})
    await site.policy((EXAMPLES / "360-roce" / "policy.yaml").read_text())
    await site.start_webhook()
    await site.register("prod")
    first = await site.start_extender()
    extender_proxy.backend = first.port
    await schedulers.volcano(conf=with_extender(extender_proxy.url))

    async def kill_at_the_third(request):
        if request.path == "/volcano/allocate" and extender_proxy.counts[request.path] == 3:
            await first.kill()
            extender_proxy.backend = None
            if back == "within the gang":  # Volcano waits for this very call meanwhile
                extender_proxy.backend = (await site.start_extender()).port

    extender_proxy.hook = kill_at_the_third
    await plane.api.create(job("struck", 8))
    struck = await running(plane, "prod", "struck", 8)
    assert not first.process.running, "the extender was to die in the middle of the gang"
    extender_proxy.hook = None
    if back == "after it":
        extender_proxy.backend = (await site.start_extender()).port
    # On a loaded machine Volcano may have placed the gang before the second extender is ready.
    await waiting.wait(lambda: extender_proxy.backend, describe="the second extender")
    second = site.extender
    assert extender_proxy.counts["/volcano/allocate"] >= 8
    await plane.api.create(job("after", 8))
    after = await running(plane, "prod", "after", 8)
    used = [pod["spec"]["nodeName"] for pod in (*struck, *after)]
    assert len(set(used)) == 16, f"a node was given twice: {sorted(used)}"
    # What the restarted extender believes is what the cluster holds: it refuses every node, each with its holder.
    asked = after[0] | {"metadata": after[0]["metadata"] | {"uid": "another", "name": "another"}}
    asked["spec"] = {key: value for key, value in asked["spec"].items() if key != "nodeName"}
    body = {"Pod": asked, "Nodes": None, "NodeNames": sorted(set(used))}
    await sites.wait_metric(second, "railwright_assumed_pods", 0)
    async with plane.session.post(
        f"{extender_proxy.url}/scheduler/filter",
        data=msgspec.json.encode(body),
        headers={"Content-Type": "application/json"},
    ) as answer:
        filter_answer = await answer.json()
    assert filter_answer["NodeNames"] == []
    assert set(filter_answer["FailedNodes"]) == set(used)


async def test_volcano_takes_the_example_configuration_and_asks_us_by_every_verb_of_it(
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
