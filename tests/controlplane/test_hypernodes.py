"""Volcano's own topology, hard: it tries a gang in every HyperNode and takes each trial back; we take each back too."""

import asyncio

import pytest_asyncio
from plane import gangs, hypernodes, waiting
from plane import site as sites

HARD = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
EVENTS = "railwright_extender_requests_total"


@pytest_asyncio.fixture(loop_scope="session")
async def hyper_nodes(plane):
    made = hypernodes.HyperNodes(plane.api)
    yield made
    await made.remove()


async def events(extender) -> tuple[float, float]:
    """Return the numbers of allocate and deallocate events so far."""
    allocated = await sites.metric(extender, EVENTS, path="/volcano/allocate", outcome="ok")
    return allocated, await sites.metric(extender, EVENTS, path="/volcano/deallocate", outcome="ok")


async def test_dry_runs_of_a_gang_leave_no_assumed_pods(nodes, volcano_gangs, hyper_nodes):
    await gangs.make_leaves(nodes, a=4, b=5, c=3, d=6)
    await hyper_nodes.tree(s=["a", "b"], t=["c", "d"])
    extender = await volcano_gangs.install(plugins=hypernodes.AWARE)
    seen = set()
    for number, tried in enumerate((3, 2)):  # leaves that can hold all four: a, b and d, then one of them less
        allocated, deallocated = await events(extender)
        (leaf,) = gangs.runs_of(await volcano_gangs.run(f"hard-{number}", 4, **HARD))
        seen.add(leaf)
        await sites.wait_metric(extender, "railwright_assumed_pods", 0)
        new_allocated, new_deallocated = await events(extender)
        taken, returned = new_allocated - allocated, new_deallocated - deallocated
        assert returned == 2 * 4 * tried, "each leaf is tried twice over (knowledge of Volcano: 2TH)"
        assert taken == returned + 4, "and the best of them is taken in the end"
    assert len(seen) == 2, "a leaf that held four holds no four more"
    assert seen <= {"a", "b", "d"}


async def test_a_gang_that_fits_no_hyper_node_holds_nothing(plane, nodes, namespace, volcano_gangs, hyper_nodes):
    """Each leaf has the GPUs for two such pods, but in halves of nodes: Volcano sees that only as it tries."""
    half = {"nvidia.com/gpu": 4}
    for _, *others in await gangs.make_leaves(nodes, a=3, b=3):
        await gangs.hold(plane.api, namespace, *others, limits=half)
    await hyper_nodes.tree(s=["a", "b"])
    extender = await volcano_gangs.install(plugins=hypernodes.AWARE, managed=("nvidia.com/gpu",))
    await volcano_gangs.create("broken", 2, takes={"nvidia.com/gpu": 8}, **HARD)
    await volcano_gangs.unschedulable("broken")

    async def is_tried():
        return (await events(extender))[1] >= 2

    await waiting.wait(is_tried, describe="a trial taken back")
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    assert len(gangs.runs_of(await volcano_gangs.run("small", 2, takes=half, **HARD))) == 1
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    await volcano_gangs.assert_unplaced("broken")


async def test_the_preset_prefers_the_tightest_hyper_node(nodes, volcano_gangs, hyper_nodes):
    """HyperNodes across the labels, and Volcano told nothing of topology."""
    a, b = await gangs.make_leaves(nodes, a=6, b=6)
    groups = {"x": [*a[:2], *b[:3]], "y": [*a[2:4], *b[3:5]], "z": [*a[4:], b[5]]}
    await asyncio.gather(*(hyper_nodes.add_nodes(name, members) for name, members in groups.items()))
    extender = await volcano_gangs.install(gangs.policy(domains=[], preset="volcano"))
    await sites.wait_metric(extender, "railwright_cache_objects", 3, kind="hypernodes.topology.volcano.sh")
    for name, size, group in (("four", 4, "y"), ("three", 3, "z")):
        pods = await volcano_gangs.run(name, size)
        assert sorted(map(gangs.node_of, pods)) == sorted(groups[group])

    (late,) = await gangs.make_leaves(nodes, c=2)
    await hyper_nodes.add_nodes("late", late)
    await sites.wait_metric(extender, "railwright_cache_objects", 4, kind="hypernodes.topology.volcano.sh")
    assert sorted(map(gangs.node_of, await volcano_gangs.run("two", 2))) == late
