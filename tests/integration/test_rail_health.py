"""Rails that node conditions report, as NVSentinel writes them, under kube-scheduler and Volcano."""

import asyncio

import pytest
import pytest_asyncio
import reporting
from plane import commands, conditions, gangs, manifests, site, waiting
from reporting import CHAR_DEVICE, STATE

EXCLUDED = "railwright: InfiniBandStateCheck reports that rail1 does not work"
DOWN = reporting.condition(STATE, reporting.port_down("mlx5_1"))
UP = reporting.condition(STATE)
HOLD = 4  # seconds
POLICY = manifests.policy(
    {
        name: manifests.fabric(2, placement={"rails": name, "domains": [manifests.LEAF, manifests.SPINE]})
        for name in ("required", "preferred")
    },
    health={"holdSeconds": HOLD, "maxHoldSeconds": 60},
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(plane):
    async with gangs.beside_volcano(plane) as running:
        await running.install_extender(POLICY)
        yield running


async def wait_for_return(kube, name: str) -> None:
    """Wait until the extender no longer refuses a node."""

    async def is_back() -> bool:
        refusals = await gangs.list_refusals(kube, [name])
        assert name not in refusals, refusals
        return True

    await waiting.wait(is_back, describe=f"the rail of {name} to be back")


async def test_a_gang_that_requires_the_rail_goes_elsewhere_and_comes_back(plane, kube, nodes, namespace):
    await gangs.make_leaves(nodes, a=3)
    await nodes.set_condition("a-01", DOWN)
    await gangs.wait_for_refusals(kube, {"a-01": EXCLUDED})
    await gangs.release(plane.api, namespace, gangs.build_gang("train", 3), seen_by=kube.extender)
    message = await gangs.event(plane.api, namespace, "train-2", EXCLUDED)
    assert message.startswith("0/3 nodes are available")

    async def are_bound() -> bool:  # kube-scheduler goes on while a binding is being written
        placed = await plane.api.list("Pod", namespace, labels=f"{gangs.GROUP}=train")
        assert sorted(map(gangs.node_of, placed)) == ["", "a-00", "a-02"]
        return True

    await waiting.wait(are_bound, describe="two of three pods to be bound")
    await nodes.set_condition("a-01", UP)
    await gangs.bound(plane.api, namespace, 3, f"{gangs.GROUP}=train")


async def test_pods_without_the_rail_get_the_node(plane, kube, nodes, namespace):
    await gangs.make_leaves(nodes, a=1)
    await nodes.set_condition("a-00", DOWN)
    await gangs.wait_for_refusals(kube, {"a-00": EXCLUDED})
    assert await gangs.place(plane.api, namespace, "p", rails={gangs.RAILS[0]: 1}) == "a-00"


@pytest.mark.parametrize(
    ("fabric", "condition"),
    [
        ("preferred", DOWN),
        ("required", reporting.condition(CHAR_DEVICE, reporting.issm_missing("mlx5_1"))),
    ],
    ids=["preferred and excluded", "required and avoided"],
)
async def test_a_gang_takes_a_reported_rail_last(plane, kube, nodes, namespace, fabric, condition):
    await gangs.make_leaves(nodes, a=3, b=2)
    await nodes.set_condition("a-00", condition)
    await nodes.resize("a-01", {"cpu": 8})  # by CPU kube-scheduler itself prefers the reported node
    await nodes.resize("a-02", {"cpu": 8})

    assert kube.extender is not None
    await site.wait_metric(kube.extender, "railwright_rails_reported", 2, source=condition["type"])  # of two fabrics
    await gangs.hold(plane.api, namespace, "b-00", "b-01")
    await gangs.release(plane.api, namespace, gangs.build_gang("train", 2, fabric=fabric), seen_by=kube.extender)
    placed = await gangs.bound(plane.api, namespace, 2, f"{gangs.GROUP}=train")
    assert sorted(map(gangs.node_of, placed)) == ["a-01", "a-02"]
    await gangs.release(plane.api, namespace, gangs.build_gang("more", 1, fabric=fabric), seen_by=kube.extender)
    (placed_last,) = await gangs.bound(plane.api, namespace, 1, f"{gangs.GROUP}=more")
    assert gangs.node_of(placed_last) == "a-00"


async def test_a_running_gang_is_told_which_rail_of_which_node_and_not_evicted(plane, kube, nodes, namespace):
    await gangs.make_leaves(nodes, a=2)
    await gangs.run_gang(kube, namespace, "train", 2)
    await nodes.set_condition("a-01", DOWN)
    event = await conditions.event(plane.api, namespace, "GangRailReported", "a-01", "rail1", STATE)
    assert event["type"] == "Warning"
    assert "since 2026-08-12T23:00:02Z: NIC:mlx5_1 NICPort:1" in conditions.read_message(event)
    placed = await plane.api.list("Pod", namespace, labels=f"{gangs.GROUP}=train")
    assert sorted(map(gangs.node_of, placed)) == ["a-00", "a-01"]


async def test_a_flapping_rail_stays_out_for_longer_each_time(plane, kube, nodes, namespace):
    ((_, *others),) = await gangs.make_leaves(nodes, a=7)
    for change, other in zip((DOWN, UP) * 3, others, strict=True):
        await nodes.set_condition("a-00", change)
        # the watch may show two writes as one: a later change of another node shows that the extender has seen this one
        await nodes.offer(other, {gangs.RAILS[0]: 0})
        await gangs.wait_for_refusals(kube, {"a-00": EXCLUDED, other: gangs.NEVER})
    await asyncio.sleep(2.5 * HOLD)  # the third hold is four times the first
    assert await gangs.list_refusals(kube, ["a-00"]) == {"a-00": EXCLUDED}
    await wait_for_return(kube, "a-00")


@pytest.mark.parametrize("fabric", ["required", "preferred"])
async def test_volcano_gets_the_rail_last_or_never(plane, kube, nodes, namespace, fabric):
    await gangs.make_leaves(nodes, a=3)
    await nodes.set_condition("a-00", DOWN)
    await gangs.wait_for_refusals(kube, {"a-00": EXCLUDED})
    await plane.api.create(gangs.volcano_job("train", 2, fabric=fabric), namespace=namespace)
    placed = await gangs.bound(plane.api, namespace, 2, f"{gangs.VOLCANO_JOB}=train")
    assert sorted(map(gangs.node_of, placed)) == ["a-01", "a-02"]
    await plane.api.create(gangs.volcano_job("more", 1, fabric=fabric), namespace=namespace)
    if fabric == "required":

        async def is_explained() -> bool:  # Volcano asks about one node after the other
            said = await commands.explain(plane, kube.extender, namespace, "more-worker-0")
            (row,) = [row for row in said["nodes"] if row["node"] == "a-00"] or [{}]
            assert row.get("rejection", {}).get("message") == EXCLUDED.removeprefix("railwright: "), said
            return True

        await waiting.wait(is_explained, describe="the rejection of a-00")
        (waiting_pod,) = await plane.api.list("Pod", namespace, labels=f"{gangs.VOLCANO_JOB}=more")
        assert not gangs.node_of(waiting_pod)
        await nodes.set_condition("a-00", UP)
    (last,) = await gangs.bound(plane.api, namespace, 1, f"{gangs.VOLCANO_JOB}=more")
    assert gangs.node_of(last) == "a-00"
