"""Volcano's own topology: it tries a gang in every HyperNode and undoes each trial, and the extender undoes it too.

Gangs keep the constraints of their job while the extender scores nodes, and its explanations agree with them.
"""

import asyncio
from collections import defaultdict

import pytest
import pytest_asyncio
from plane import commands, gangs, hypernodes, waiting
from plane import site as sites

HARD = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
EVENTS = "railwright_requests_total"


@pytest_asyncio.fixture(loop_scope="session")
async def hyper_nodes(plane):
    made = hypernodes.HyperNodes(plane.api)
    yield made
    await made.remove()


async def count_events(extender) -> tuple[float, float]:
    """Return the numbers of allocate and deallocate events so far."""
    allocated = await sites.read_metric(extender, EVENTS, path="/volcano/allocate", outcome="ok")
    return allocated, await sites.read_metric(extender, EVENTS, path="/volcano/deallocate", outcome="ok")


async def test_trials_of_a_gang_in_hyper_nodes_leave_no_assumed_pods_in_the_extender(nodes, volcano_gangs, hyper_nodes):
    await gangs.make_leaves(nodes, a=4, b=5, c=3, d=6)
    await hyper_nodes.tree(s=["a", "b"], t=["c", "d"])
    extender = await volcano_gangs.install(plugins=hypernodes.AWARE)
    seen = set()
    for number, tried in enumerate((3, 2)):  # leaves that can hold all four: a, b and d, then one of them less
        allocated, deallocated = await count_events(extender)
        (leaf,) = gangs.list_runs(await volcano_gangs.run(f"hard-{number}", 4, **HARD))
        seen.add(leaf)
        await sites.wait_metric(extender, "railwright_assumed_pods", 0)
        new_allocated, new_deallocated = await count_events(extender)
        taken, returned = new_allocated - allocated, new_deallocated - deallocated
        assert returned == 2 * 4 * tried, "each leaf is tried twice over (knowledge of Volcano: 2TH)"
        assert taken == returned + 4, "and the best of them is taken in the end"
    assert len(seen) == 2, "a leaf that held four holds no four more"
    assert seen <= {"a", "b", "d"}


async def test_the_volcano_preset_places_a_gang_in_the_smallest_hyper_node_with_room(nodes, volcano_gangs, hyper_nodes):
    """HyperNodes that cross the labels' leaves, and no topology in Volcano's configuration."""
    a, b = await gangs.make_leaves(nodes, a=6, b=6)
    groups = {"x": [*a[:2], *b[:3]], "y": [*a[2:4], *b[3:5]], "z": [*a[4:], b[5]]}
    await asyncio.gather(*(hyper_nodes.add_nodes(name, members) for name, members in groups.items()))
    extender = await volcano_gangs.install(gangs.policy(domains=[], preset="volcano"))
    await sites.wait_metric(extender, "railwright_cache_objects", 3, kind="hypernodes.topology.volcano.sh")
    for name, size, group in (("four", 4, "y"), ("three", 3, "z")):
        pods = await volcano_gangs.run(name, size)
        assert sorted(map(gangs.get_node, pods)) == sorted(groups[group])

    (late,) = await gangs.make_leaves(nodes, c=2)
    await hyper_nodes.add_nodes("late", late)
    await sites.wait_metric(extender, "railwright_cache_objects", 4, kind="hypernodes.topology.volcano.sh")
    assert sorted(map(gangs.get_node, await volcano_gangs.run("two", 2))) == late


# --- constraints of the author --------------------------------------------------------------------------------

SPINES = {"s": {"a": 4, "b": 3, "c": 4}, "t": {"d": 6}}
PARTITION = "volcano.sh/partition-id"


def topology(mode: str, tier: int | None = None) -> dict:
    return {"mode": mode} if tier is None else {"mode": mode, "highestTierAllowed": tier}


@pytest_asyncio.fixture(loop_scope="session")
async def tree(nodes, volcano_gangs, hyper_nodes):
    """Yield the extender, called by Volcano, on leaves of two spines with a HyperNode each."""
    for spine, leaves in SPINES.items():
        await gangs.make_leaves(nodes, spine=spine, **leaves)
    await hyper_nodes.tree(**{spine: list(leaves) for spine, leaves in SPINES.items()})
    return await volcano_gangs.install(plugins=hypernodes.AWARE)


def find_spines(pods) -> set[str]:
    return {spine for spine, leaves in SPINES.items() if not leaves.keys().isdisjoint(gangs.list_leaves(pods))}


async def explain(plane, extender, namespace, pods) -> dict:
    return await commands.explain(plane, extender, namespace, pods[0]["metadata"]["name"])


@pytest.mark.parametrize(
    ("constraint", "size", "leaves", "spines"),
    [
        (topology("hard", 2), 8, 2, 1),
        (topology("soft"), 5, 1, 1),
    ],
    ids=["hard, spine", "soft"],
)
async def test_a_gang_stays_in_one_hyper_node_of_the_tier_in_its_constraint(
    plane, namespace, tree, volcano_gangs, constraint, size, leaves, spines
):
    pods = await volcano_gangs.run("gang", size, networkTopology=constraint)
    assert len(set(gangs.list_leaves(pods))) <= leaves
    assert len(find_spines(pods)) == spines

    async def is_assessed() -> dict:
        said = await explain(plane, tree, namespace, pods)
        assert said["gang"]["placed"] == said["gang"]["size"]
        return said

    said = await waiting.wait(is_assessed, describe="the placement to be assessed")
    assert said["gang"]["state"] == "placed", said


async def test_each_partition_of_a_volcano_job_stays_in_one_leaf(plane, namespace, tree, volcano_gangs):
    job = gangs.volcano_job("gang", 8)
    partitions = {"totalPartitions": 2, "partitionSize": 4, "networkTopology": topology("hard", 1)}
    job["spec"]["tasks"][0]["partitionPolicy"] = partitions
    job["spec"]["networkTopology"] = topology("hard", 2)
    await plane.api.create(job, namespace=namespace)
    pods = await volcano_gangs.wait_running("gang", 8)
    leaves = defaultdict(set)
    for pod, leaf in zip(pods, gangs.list_leaves(pods), strict=True):
        leaves[pod["metadata"]["labels"][PARTITION]].add(leaf)
    assert [len(leaves[number]) for number in ("0", "1")] == [1, 1]
    assert len(find_spines(pods)) == 1
    said = await explain(plane, tree, namespace, pods)
    assert said["gang"]["state"] in {"starting", "placed", "spread"}, "it has room"
