"""Gangs under kube-scheduler, which places pod by pod and adds its own scores."""

import asyncio
import contextlib

import pytest
from plane import gangs

GROUP, JOBSET = gangs.GROUP, "jobset.sigs.k8s.io/jobset-name"
_SOFT_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "none"}},
}
PREFERRING = {"topologySpreadConstraints": [_SOFT_SPREAD]}  # so that filter leaves all nodes


async def test_a_gang_takes_the_smallest_leaf_with_room_for_it(plane, kube, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    # By CPU the right leaf is the fullest: kube-scheduler's own plugins prefer the others.
    await asyncio.gather(*(nodes.resize(f"right-{index:02}", {"cpu": 8}) for index in range(8)))
    placed = await gangs.run_gang(kube, namespace, "train", 8, JOBSET)
    assert set(gangs.list_leaves(placed)) == {"right"}


async def test_a_gang_whose_pods_prefer_nodes_is_placed_by_scores_in_the_smallest_leaf_with_room(
    plane, kube, nodes, namespace
):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    before = kube.proxy.counts["/scheduler/prioritize"]
    await gangs.release(plane.api, namespace, gangs.build_gang("train", 8, **PREFERRING), seen_by=kube.extender)
    placed = await gangs.wait_bound(plane.api, namespace, 8, f"{GROUP}=train")
    assert set(gangs.list_leaves(placed)) == {"right"}
    assert kube.proxy.counts["/scheduler/prioritize"] > before


ORDERS = {
    "as a batch Job": None,
    "mixed": (4, 10, 0, 7, 2, 9, 1, 8, 3, 6, 5),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_a_gang_over_two_leaves_has_consecutive_ranks_in_each(plane, kube, nodes, namespace, order):
    await gangs.make_leaves(nodes, few=3, some=6, more=7)
    if order is None:
        await gangs.start_job(kube, namespace, gangs.job("train", 11))
        selector = f"{gangs.JOB_NAME}=train"
    else:
        made, selector = gangs.build_gang("train", 11), f"{GROUP}=train"
        await gangs.release(plane.api, namespace, [made[rank] for rank in order], seen_by=kube.extender)
    placed = await gangs.wait_bound(plane.api, namespace, 11, selector)
    assert sorted(gangs.list_runs(placed)) == ["more", "some"], gangs.list_leaves(placed)


async def test_two_gangs_at_once_do_not_share_a_leaf(plane, kube, nodes, namespace):
    await gangs.make_leaves(nodes, one=6, two=6, few=2)
    await gangs.release(
        plane.api, namespace, *(gangs.build_gang(name, 6) for name in ("left", "right")), seen_by=kube.extender
    )
    placed = [await gangs.wait_bound(plane.api, namespace, 6, f"{GROUP}={name}") for name in ("left", "right")]
    leaves = [gangs.list_runs(gang) for gang in placed]
    assert sorted(leaves) == [["one"], ["two"]], leaves


@contextlib.contextmanager
def act_during_call(kube, path: str, number: int, act):
    """Call `act` while kube-scheduler waits for the `number`-th answer to a path."""
    before = kube.proxy.counts[path]

    async def hook(request):
        if request.path == path and kube.proxy.counts[path] == before + number:
            await act()

    kube.proxy.hook = hook
    yield
    kube.proxy.hook = None


@pytest.mark.parametrize(
    ("path", "preferences", "most"), [("/scheduler/filter", {}, 1), ("/scheduler/prioritize", PREFERRING, 2)]
)
async def test_a_gang_continues_in_its_leaf_after_a_restart_of_the_extender(
    plane, kube, nodes, namespace, path, preferences, most
):
    await gangs.make_leaves(nodes, few=3, right=6, many=8)
    killed = []

    async def restart():
        killed.append(await kube.extender.kill())
        kube.proxy.backend = None
        await kube.start_extender()

    with act_during_call(kube, path, 3, restart):
        await gangs.release(plane.api, namespace, gangs.build_gang("train", 6, **preferences), seen_by=kube.extender)
        placed = await gangs.wait_bound(plane.api, namespace, 6, f"{GROUP}=train")
    assert killed
    leaves = gangs.list_leaves(placed)
    # A filter that fails is tried again. A prioritize that fails goes unsaid: that one pod is placed without us.
    assert len(set(leaves)) <= most, leaves
    assert leaves[:2] == ["right", "right"]
