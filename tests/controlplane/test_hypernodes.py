"""Volcano's own topology, hard: it tries a gang in every HyperNode and takes each trial back; we take each back too."""

import asyncio

import pytest_asyncio
from plane import api, training, waiting
from plane import site as sites

HYPER_NODE = "topology.volcano.sh/v1alpha1/HyperNode"
AWARE = ({"name": "network-topology-aware", "arguments": {"weight": 10}},)
HARD = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
EVENTS = "railwright_extender_requests_total"


def hyper_node(name: str, tier: int, member: str, selector: dict) -> dict:
    spec = {"tier": tier, "members": [{"type": member, "selector": selector}]}
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": spec,
    }


class HyperNodes:
    """Creates HyperNodes, and deletes them at the end."""

    def __init__(self, client: api.Api) -> None:
        self._api = client
        self._names: list[str] = []

    async def add(self, manifest: dict) -> None:
        self._names.append(manifest["metadata"]["name"])
        await self._api.create(manifest)

    async def tree(self, **spines: list[str]) -> None:
        """Create a HyperNode of tier 1 for the nodes of each leaf, and of tier 2 for the leaves of each spine."""
        for spine, leaves in spines.items():
            for leaf in leaves:
                labels = {"labelMatch": {"matchLabels": {training.LEAF: leaf}}}
                await self.add(hyper_node(leaf, 1, "Node", labels))
            pattern = {"regexMatch": {"pattern": f"^({'|'.join(leaves)})$"}}
            await self.add(hyper_node(spine, 2, "HyperNode", pattern))

    async def remove(self) -> None:
        await asyncio.gather(*(self._api.delete(HYPER_NODE, name) for name in self._names))


@pytest_asyncio.fixture(loop_scope="session")
async def hyper_nodes(plane):
    made = HyperNodes(plane.api)
    yield made
    await made.remove()


def build_hyper_node(hyper: str, nodes: list[str]) -> dict:
    """Return a HyperNode of tier 1 that lists its nodes."""
    members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in nodes]
    manifest = hyper_node(hyper, 1, "Node", {})
    manifest["spec"]["members"] = members
    return manifest


async def events(extender) -> tuple[float, float]:
    """Return the numbers of allocate and deallocate events so far."""
    allocated = await sites.metric(extender, EVENTS, path="/volcano/allocate", outcome="ok")
    return allocated, await sites.metric(extender, EVENTS, path="/volcano/deallocate", outcome="ok")


async def test_dry_runs_of_a_gang_leave_no_assumed_pods(
    plane, nodes, namespace, site, schedulers, extender_proxy, hyper_nodes
):
    await training.make_leaves(nodes, a=4, b=5, c=3, d=6)
    await hyper_nodes.tree(s=["a", "b"], t=["c", "d"])
    conf = training.conf(extender_proxy.url, plugins=AWARE)
    extender = await training.install(plane, site, extender_proxy, training.policy(), conf)
    seen = set()
    for number, tried in enumerate((3, 2)):  # leaves that can hold all four: a, b and d, then one of them less
        allocated, deallocated = await events(extender)
        name = f"hard-{number}"
        await plane.api.create(training.job(name, 4, **HARD), namespace=namespace)
        pods = await training.running(plane.api, namespace, name, 4)
        (leaf,) = training.leaves_of(pods)
        seen.add(leaf)
        await sites.wait_metric(extender, "railwright_assumed_pods", 0)
        new_allocated, new_deallocated = await events(extender)
        taken, returned = new_allocated - allocated, new_deallocated - deallocated
        assert returned == 2 * 4 * tried, "each leaf is tried twice over (knowledge of Volcano: 2TH)"
        assert taken == returned + 4, "and the best of them is taken in the end"
    assert len(seen) == 2, "a leaf that held four holds no four more"
    assert seen <= {"a", "b", "d"}


async def test_a_gang_that_fits_no_hyper_node_holds_nothing(
    plane, nodes, namespace, site, schedulers, extender_proxy, hyper_nodes
):
    """Each leaf has the GPUs for two such pods, but in halves of nodes: Volcano sees that only as it tries."""
    half = {training.GPU: "4"}
    for _, *others in await training.make_leaves(nodes, a=3, b=3):
        for name in others:
            await plane.api.create(training.holder(name, takes=half), namespace=namespace)
    await hyper_nodes.tree(s=["a", "b"])
    conf = training.conf(extender_proxy.url, plugins=AWARE, managed=(training.GPU,))
    extender = await training.install(plane, site, extender_proxy, training.policy(), conf)
    takes = {training.GPU: "8"}
    await plane.api.create(training.job("broken", 2, takes=takes, **HARD), namespace=namespace)
    await training.unschedulable(plane.api, namespace, "broken")

    async def is_tried():
        return (await events(extender))[1] >= 2

    await waiting.wait(is_tried, describe="a trial taken back")
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    await plane.api.create(training.job("small", 2, takes=half, **HARD), namespace=namespace)
    pods = await training.running(plane.api, namespace, "small", 2)
    assert len(training.leaves_of(pods)) == 1
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    assert not any("nodeName" in pod["spec"] for pod in await training.pods(plane.api, namespace, "broken"))


async def test_the_preset_prefers_the_tightest_hyper_node(
    plane, nodes, namespace, site, schedulers, extender_proxy, hyper_nodes
):
    """HyperNodes across the labels, and Volcano told nothing of topology."""
    a, b = await training.make_leaves(nodes, a=6, b=6)
    groups = {"x": [*a[:2], *b[:3]], "y": [*a[2:4], *b[3:5]], "z": [*a[4:], b[5]]}
    await asyncio.gather(*(hyper_nodes.add(build_hyper_node(hyper, names)) for hyper, names in groups.items()))
    text = training.policy(domains=[], preset="volcano")
    extender = await training.install(plane, site, extender_proxy, text, training.conf(extender_proxy.url))
    await sites.wait_metric(extender, "railwright_cache_objects", 3, kind="hypernodes.topology.volcano.sh")
    for name, size, group in (("four", 4, "y"), ("three", 3, "z")):
        await plane.api.create(training.job(name, size), namespace=namespace)
        pods = await training.running(plane.api, namespace, name, size)
        assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(groups[group])

    late = await training.make_leaf(nodes, "c", 2)
    await hyper_nodes.add(build_hyper_node("late", late))
    await sites.wait_metric(extender, "railwright_cache_objects", 4, kind="hypernodes.topology.volcano.sh")
    await plane.api.create(training.job("two", 2), namespace=namespace)
    pods = await training.running(plane.api, namespace, "two", 2)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == late
