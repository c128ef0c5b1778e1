"""Nodes, rails and device plugins that fail and come back, and preemption, under kube-scheduler."""

import pytest_asyncio
from plane import kube as kubes
from plane import waiting

GROUP = "scheduling.x-k8s.io/pod-group"
NEVER = "railwright: the node cannot give rail0: 1 nvidia.com/mlx5_0 needed, 0 allocatable"
BUSY = "railwright: rail0 is busy: 0 of 1 nvidia.com/mlx5_0 free, 1 needed"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(plane):
    async with kubes.running(plane, ignored=True) as running:
        yield running


async def pod(plane, namespace: str, name: str, **kinds) -> dict:
    return await plane.api.create(kubes.pod(name, labels={"name": name}, **kinds), namespace=namespace)


async def where(plane, namespace: str, name: str) -> str:
    (found,) = await kubes.bound(plane.api, namespace, 1, f"name={name}")
    return kubes.node_of(found)


async def place(plane, namespace: str, name: str, **kinds) -> str:
    await pod(plane, namespace, name, **kinds)
    return await where(plane, namespace, name)


async def run_gang(plane, namespace: str, name: str, size: int) -> list[dict]:
    manifests = [kubes.pod(f"{name}-{index}", labels={GROUP: name}) for index in range(size)]
    await kubes.release(plane.api, namespace, manifests)
    return await kubes.bound(plane.api, namespace, size, f"{GROUP}={name}")


async def test_a_node_that_flaps_is_no_room_for_a_gang_until_it_is_back(plane, kube, nodes, namespace):
    await kubes.make_leaves(nodes, tight=2, wide=7)
    await nodes.make("tight-02", rails=kubes.ONE_EACH, labels={kubes.LEAF: "tight", kubes.SPINE: "s0"}, kwok=False)
    await nodes.flap("tight-02", ready=False)
    assert set(kubes.leaves_of(await run_gang(plane, namespace, "away", 3))) == {"wide"}
    await nodes.flap("tight-02", ready=True)
    assert set(kubes.leaves_of(await run_gang(plane, namespace, "back", 3))) == {"tight"}


async def test_pods_hold_their_devices_on_a_node_that_was_deleted_and_made_anew(plane, kube, nodes, namespace):
    await nodes.make("anew", rails=kubes.ONE_EACH, labels={kubes.LEAF: "old"})
    assert await place(plane, namespace, "holder", gpus=0) == "anew"
    await nodes.remove("anew")
    await nodes.make("anew", rails=kubes.ONE_EACH, labels={kubes.LEAF: "new"})
    await pod(plane, namespace, "next", gpus=0)
    await kubes.event(plane.api, namespace, "next", BUSY)
    await plane.api.delete("Pod", "holder", namespace, grace=0)
    assert await where(plane, namespace, "next") == "anew"


async def test_a_node_made_anew_in_another_leaf_counts_there(plane, kube, nodes, namespace):
    await kubes.make_leaves(nodes, tight=3, wide=5)
    await nodes.remove("tight-02")
    await nodes.make("tight-02", rails=kubes.ONE_EACH, labels={kubes.LEAF: "wide", kubes.SPINE: "s0"})
    placed = {kubes.node_of(each) for each in await run_gang(plane, namespace, "train", 3)}
    assert placed.isdisjoint({"tight-00", "tight-01"}), placed


async def test_a_dead_rail_refuses_a_node_for_good_and_preemption_is_not_tried_there(plane, kube, nodes, namespace):
    for name in ("dead", "busy"):
        await nodes.make(name, rails=kubes.ONE_EACH)
        assert await place(plane, namespace, f"on-{name}", gpus=0) == name  # of no priority: each a victim to be
    await nodes.offer("dead", {kubes.RAILS[0]: 0})
    await pod(plane, namespace, "waiting", gpus=0, priorityClassName="system-cluster-critical")
    message = await kubes.event(plane.api, namespace, "waiting", BUSY, NEVER, "preemption: ")
    # It looked for victims on the busy node (and saw none: the rails are left to us), and only there.
    assert message.partition("preemption: ")[2] == 'expected at least one victim pod on node "busy"'


async def test_a_rail_that_lost_devices_lowers_the_score_and_does_not_refuse(plane, kube, nodes, namespace):
    for name in ("degraded", "whole"):
        await nodes.make(name, gpus=4, rails=kubes.SHARED)
    await nodes.offer("degraded", {kubes.RAILS[0]: 50})
    await nodes.resize("whole", {"cpu": 4})  # by CPU kube-scheduler itself prefers the other
    kinds = {"gpus": 4, "rails": kubes.ONE_EACH}
    assert await place(plane, namespace, "first", **kinds) == "whole"
    assert await place(plane, namespace, "second", **kinds) == "degraded"


async def test_a_waiting_pod_is_placed_once_the_device_plugin_is_back(plane, kube, nodes, namespace):
    await nodes.make("only", rails=kubes.ONE_EACH)
    await nodes.offer("only", {kubes.RAILS[0]: 0})
    await pod(plane, namespace, "waiting")
    await kubes.event(plane.api, namespace, "waiting", NEVER)
    await nodes.offer("only", {kubes.RAILS[0]: 1})
    assert await where(plane, namespace, "waiting") == "only"


async def test_bound_pods_stay_counted_while_their_device_plugin_restarts(plane, kube, nodes, namespace):
    await nodes.make("only", rails=dict.fromkeys(kubes.RAILS, 2))
    assert await place(plane, namespace, "holder", gpus=0) == "only"
    await nodes.offer("only", dict.fromkeys(kubes.RAILS, 0))
    await pod(plane, namespace, "second", gpus=0)
    await kubes.event(plane.api, namespace, "second", NEVER)
    await nodes.offer("only", dict.fromkeys(kubes.RAILS, 2))
    assert await where(plane, namespace, "second") == "only"
    await pod(plane, namespace, "third", gpus=0)
    await kubes.event(plane.api, namespace, "third", BUSY.replace("of 1", "of 2"))


async def test_a_victims_devices_are_not_handed_out_before_it_is_gone(plane, kube, nodes, namespace):
    await nodes.make("only", rails=kubes.ONE_EACH, kwok=False)  # its pods end when this test says so
    assert await place(plane, namespace, "victim") == "only"
    await pod(plane, namespace, "urgent", priorityClassName="system-cluster-critical")

    async def evicted():
        victim = await plane.api.get("Pod", "victim", namespace)
        urgent = await plane.api.get("Pod", "urgent", namespace)
        return victim["metadata"].get("deletionTimestamp") and urgent["status"].get("nominatedNodeName") == "only"

    await waiting.wait(evicted, seconds=60, describe="the victim to be on its way out")
    # It needs no GPU, so that none but us could refuse it; and the urgent pod is not placed before its time either.
    await pod(plane, namespace, "thief", gpus=0)
    await kubes.event(plane.api, namespace, "thief", BUSY)
    assert kubes.node_of(await plane.api.get("Pod", "urgent", namespace)) == ""
    await plane.api.delete("Pod", "thief", namespace, grace=0)
    await plane.api.delete("Pod", "victim", namespace, grace=0)
    assert await where(plane, namespace, "urgent") == "only"


async def test_with_rails_counted_by_kube_scheduler_a_rail_is_won_by_priority(plane, kube, nodes, namespace):
    for name in ("dead", "held"):
        await nodes.make(name, rails=kubes.ONE_EACH)
    await nodes.offer("dead", {kubes.RAILS[0]: 0})
    assert await place(plane, namespace, "victim", gpus=0) == "held"
    await plane.schedulers.kube(kubes.entry(kube.door.url, ignored=False))
    urgent = await place(plane, namespace, "urgent", gpus=0, priorityClassName="system-cluster-critical")
    assert urgent == "held"
    assert await plane.api.get_or_none("Pod", "victim", namespace) is None
