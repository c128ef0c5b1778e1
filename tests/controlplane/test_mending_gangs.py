"""Gangs that lost a pod or the extender's memory are completed next to their other pods."""

import asyncio

import pytest
from plane import site as sites
from plane import training, waiting


@pytest.mark.parametrize("struck_at", [4, 6], ids="before allocate {}".format)
async def test_a_gang_over_two_leaves_takes_no_third_one_though_the_extender_is_killed_in_the_middle(
    plane, nodes, namespace, site, schedulers, extender_proxy, struck_at
):
    await training.make_leaves(nodes, a=5, b=4, c=4, d=2)
    conf = training.conf(extender_proxy.url, httpTimeout="60s")
    first = await training.install(plane, site, extender_proxy, training.policy(), conf)

    async def kill(request):
        if request.path == "/volcano/allocate" and extender_proxy.counts[request.path] == struck_at:
            extender_proxy.backend = None
            await first.kill()
            extender_proxy.backend = (await site.start_extender()).port

    extender_proxy.hook = kill
    await plane.api.create(training.job("struck", 9), namespace=namespace)
    struck = await training.running(plane.api, namespace, "struck", 9)
    assert not first.process.running, "the extender was to die in the middle of the gang"
    extender_proxy.hook = None
    leaves = [training.leaf_of(pod) for pod in struck]
    assert len(set(leaves)) == 2, leaves
    assert len({pod["spec"]["nodeName"] for pod in struck}) == 9
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    await plane.api.create(training.job("after", 4), namespace=namespace)
    assert len(training.leaves_of(await training.running(plane.api, namespace, "after", 4))) == 1


async def test_a_pod_that_a_running_gang_lost_comes_back_next_to_its_mates_though_another_leaf_is_tighter(
    plane, nodes, namespace, site, schedulers, extender_proxy
):
    await training.make_leaf(nodes, "peers", 7)
    extender = await training.install(plane, site, extender_proxy, training.policy(), training.conf(extender_proxy.url))
    await plane.api.create(training.job("train", 4), namespace=namespace)
    before = await training.running(plane.api, namespace, "train", 4)
    await training.make_leaves(nodes, **{f"tight{number}": 1 for number in range(8)})
    for lost in ([before[2]], [before[0], before[3]]):
        for pod in lost:  # nobody comes back to the same node
            await plane.api.patch("Node", pod["spec"]["nodeName"], {"spec": {"unschedulable": True}})
        await asyncio.gather(*(plane.api.delete("Pod", pod["metadata"]["name"], namespace, grace=0) for pod in lost))
        await waiting.wait(lambda lost=lost: are_replaced(plane, lost), describe="the lost pods to be created again")
        pods = await training.running(plane.api, namespace, "train", 4)
        assert training.leaves_of(pods) == ["peers"], [pod["spec"]["nodeName"] for pod in pods]
        assert not {pod["spec"]["nodeName"] for pod in lost} & {pod["spec"]["nodeName"] for pod in pods}
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def are_replaced(plane, lost: list[dict]) -> bool:
    now = [await plane.api.get_or_none("Pod", p["metadata"]["name"], p["metadata"]["namespace"]) for p in lost]
    return all(
        new is not None and new["metadata"]["uid"] != old["metadata"]["uid"] for new, old in zip(now, lost, strict=True)
    )
