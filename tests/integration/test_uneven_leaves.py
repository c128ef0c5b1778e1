"""Gangs on partly used leaves of many sizes: the 15 leaf groups of a published cluster of 64 nodes."""

import itertools

import pytest_asyncio
from plane import gangs

# CoreWeave H100, marin-community/marin issue 6950: leaf groups of 1,1,2,2,2,3,3,3,5,5,6,6,6,8,11 in pods of 41 and 23
SPINES = {"spine-a": (11, 8, 6, 6, 5, 5), "spine-b": (6, 3, 3, 3, 2, 2, 2, 1, 1)}
TAKEN = {"a0": 3, "a1": 1, "a3": 1, "a5": 2, "b1": 1, "b4": 1}  # leaf: nodes that other jobs hold
FREE = {
    f"{spine[-1]}{number}": size - TAKEN.get(f"{spine[-1]}{number}", 0)  # a0 8, a1 7, a2 and b0 6, a3 and a4 5
    for spine, sizes in SPINES.items()
    for number, size in enumerate(sizes)
}


@pytest_asyncio.fixture(loop_scope="session")
async def extender(plane, nodes, namespace, volcano_gangs):
    """Yield the extender of the cluster, with pods on the used nodes."""
    for spine, sizes in SPINES.items():
        leaves = {f"{spine[-1]}{number}": size for number, size in enumerate(sizes)}
        await gangs.make_leaves(nodes, spine=spine, **leaves)
    taken = [f"{leaf}-{number:02}" for leaf, count in TAKEN.items() for number in range(count)]
    await gangs.hold_devices(plane.api, namespace, *taken)
    return await volcano_gangs.install()


def fewest(size: int) -> int:
    """Return the smallest number of leaves that can hold this number of pods."""
    held = list(itertools.accumulate(sorted(FREE.values(), reverse=True)))
    return next(count for count, room in enumerate(held, 1) if room >= size)


async def test_a_large_gang_uses_the_fewest_leaves_in_rank_order(volcano_gangs, extender):
    pods = await volcano_gangs.run("long", 20, master=True)
    assert [pod["metadata"]["name"] for pod in pods[:2]] == ["long-master-0", "long-worker-0"]
    leaves = gangs.list_runs(pods)  # a leaf once for each stretch of ranks
    assert len(leaves) == fewest(21), gangs.list_leaves(pods)
    assert {leaf[0] for leaf in leaves} == {"a"}, "one spine holds it"
