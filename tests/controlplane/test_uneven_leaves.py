"""Gangs on leaves of many sizes, part of their nodes taken: the 15 leaf groups of a published cluster of 64 nodes."""

import asyncio
import collections
import itertools

import pytest_asyncio
from plane import nodes as fleets
from plane import reverse_proxy, training, waiting
from plane import site as sites

# CoreWeave H100, marin-community/marin issue 6950: leaf groups of 1,1,2,2,2,3,3,3,5,5,6,6,6,8,11 in pods of 41 and 23
SPINES = {"spine-a": (11, 8, 6, 6, 5, 5), "spine-b": (6, 3, 3, 3, 2, 2, 2, 1, 1)}
LEAVES = {f"{spine[-1]}{number}": (spine, size) for spine, sizes in SPINES.items() for number, size in enumerate(sizes)}
TAKEN = {"a0": 3, "a1": 1, "a3": 1, "a5": 2, "b1": 1, "b4": 1}  # leaf: nodes that other jobs hold
FREE = {leaf: size - TAKEN.get(leaf, 0) for leaf, (_, size) in LEAVES.items()}  # a0 8, a1 7, a2 and b0 6, a3 and a4 5


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hall(plane):
    """Yield the cluster with its taken nodes, the extender, and Volcano that asks it; for all tests of this file."""
    nodes, site, namespace = fleets.Nodes(plane.api), sites.Site(plane), "uneven-others"
    opened = await reverse_proxy.ReverseProxy().open()
    await asyncio.gather(
        *(training.make_leaf(nodes, leaf, size, spine=spine) for leaf, (spine, size) in LEAVES.items())
    )
    await plane.make_namespace(namespace)
    busy = [f"{leaf}-{number:02}" for leaf, count in TAKEN.items() for number in range(count)]
    await asyncio.gather(*(plane.api.create(training.holder(name), namespace=namespace) for name in busy))

    async def is_held():
        return all(pod["status"].get("phase") == "Running" for pod in await plane.api.list("Pod", namespace))

    await waiting.wait(is_held, describe="the other jobs' pods to run")
    await site.prepare()
    yield await training.install(plane, site, opened, training.policy(), training.conf(opened.url))
    await plane.schedulers.reset()
    await site.remove()
    await opened.close()
    await plane.remove_namespace(namespace)
    await nodes.remove()


def fewest(size: int, rooms: dict[str, int]) -> int:
    """Return how few leaves can hold so many pods."""
    held = list(itertools.accumulate(sorted(rooms.values(), reverse=True)))
    return next(count for count, room in enumerate(held, 1) if room >= size)


async def test_each_gang_takes_the_tightest_leaf_left(plane, hall, namespace):
    rooms = dict(FREE)
    for size in (5, 6, 4, 7, 6, 2):
        name = f"of-{size}-{sum(rooms.values())}"
        await plane.api.create(training.job(name, size), namespace=namespace)
        (leaf,) = training.leaves_of(await training.running(plane.api, namespace, name, size))
        assert rooms[leaf] == min(room for room in rooms.values() if room >= size), (size, leaf, rooms)
        rooms[leaf] -= size


async def test_a_large_gang_uses_the_fewest_leaves_in_rank_order(plane, hall, namespace):
    size = 21
    await plane.api.create(training.job("long", size - 1, master=True), namespace=namespace)
    pods = await training.running(plane.api, namespace, "long", size)
    assert [pod["metadata"]["name"] for pod in pods[:2]] == ["long-master-0", "long-worker-0"]
    leaves = training.leaves_of(pods)  # a leaf once for each stretch of ranks
    assert len(leaves) == fewest(size, FREE), [training.leaf_of(pod) for pod in pods]
    assert {LEAVES[leaf][0] for leaf in leaves} == {"spine-a"}, "one spine holds it"


async def test_two_gangs_at_once_are_compact_and_share_no_leaf(plane, hall, namespace):
    size = 10
    names = ("first", "second")
    await asyncio.gather(*(plane.api.create(training.job(name, size), namespace=namespace) for name in names))
    leaves = {}
    for name in names:
        pods = await training.running(plane.api, namespace, name, size)
        leaves[name] = training.leaves_of(pods)
        assert len(leaves[name]) == fewest(size, FREE), (name, [training.leaf_of(pod) for pod in pods])
    used = collections.Counter(itertools.chain(*leaves.values()))
    assert set(used.values()) == {1}, leaves
    await sites.wait_metric(hall, "railwright_assumed_pods", 0)
