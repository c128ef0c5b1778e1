"""Ranks follow leaves under kube-scheduler, whatever label a framework writes the rank to."""

import pytest
import pytest_asyncio
from plane import gangs

from railwright.fabric.workloads import membership

ORDER = (4, 9, 0, 7, 2, 8, 1, 3, 6, 5)  # in which the pods come


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(plane):
    async with gangs.running(plane, ignored=True) as running:
        yield running


@pytest.mark.parametrize("label", membership.INDEX_LABELS)
async def test_ranks_by_the_label_of_each_framework_fill_one_leaf_after_the_other(plane, kube, nodes, namespace, label):
    await gangs.make_leaves(nodes, few=2, some=5, more=6)
    # the names say nothing of the ranks: pods of ranks 0, 1, 2, 3, ... end with 0, 7, 4, 1, ...
    made = {
        rank: gangs.pod(f"train-{rank * 7 % len(ORDER)}", labels={gangs.GROUP: "train", label: str(rank)})
        for rank in ORDER
    }
    await gangs.release(plane.api, namespace, [made[rank] for rank in ORDER])
    placed = await gangs.bound(plane.api, namespace, len(ORDER), f"{gangs.GROUP}=train")
    by_rank = sorted(placed, key=lambda pod: int(pod["metadata"]["labels"][label]))
    assert sorted(gangs.runs_of(by_rank)) == ["more", "some"], gangs.leaves_of(by_rank)
