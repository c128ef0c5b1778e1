"""Gangs whose extender is killed in the middle, under Volcano. The same under kube-scheduler is in test_kube_gangs.py,
and what replicas do for each other in test_standby.py.
"""

import pytest
from plane import site as sites
from plane import training


@pytest.fixture
def kill(site, extender_proxy):
    """`kill(call)`: the extender is killed at that allocate; Volcano waits for this very call meanwhile."""

    def arm(call: int, *, is_restarted: bool = True) -> None:
        async def hook(request):
            if request.path == "/volcano/allocate" and extender_proxy.counts[request.path] == call:
                extender_proxy.backend = None
                await site.extender.kill()
                if is_restarted:
                    extender_proxy.backend = (await site.start_extender()).port

        extender_proxy.hook = hook

    return arm


def nodes_of(pods: list[dict]) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods}


@pytest.mark.parametrize("call", [4, 6], ids="before allocate {}".format)
async def test_a_gang_takes_no_third_leaf_after_a_restart(
    plane, nodes, namespace, site, schedulers, extender_proxy, kill, call
):
    await training.make_leaves(nodes, a=5, b=4, c=4, d=2)
    conf = training.conf(extender_proxy.url, httpTimeout="60s")
    first = await training.install(plane, site, extender_proxy, training.policy(rails="required"), conf)
    kill(call)
    await plane.api.create(training.job("struck", 9), namespace=namespace)
    struck = await training.running(plane.api, namespace, "struck", 9)
    assert not first.process.running, "the extender was to die in the middle of the gang"
    extender_proxy.hook = None
    leaves = [training.leaf_of(pod) for pod in struck]
    assert len(set(leaves)) == 2, leaves
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    await plane.api.create(training.job("after", 4), namespace=namespace)
    after = await training.running(plane.api, namespace, "after", 4)
    assert len(training.leaves_of(after)) == 1
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    taken = nodes_of(struck) | nodes_of(after)
    assert len(taken) == 13
    refusals = await training.list_refusals(plane, extender_proxy.url, namespace, sorted(taken))
    assert refusals.keys() == taken, "the restarted extender knows what the cluster holds"


async def test_a_gang_completes_while_the_extender_is_away(
    plane, nodes, namespace, site, schedulers, extender_proxy, kill
):
    await training.make_leaves(nodes, a=6, b=6)
    first = await training.install(plane, site, extender_proxy, training.policy(), training.conf(extender_proxy.url))
    kill(3, is_restarted=False)
    await plane.api.create(training.job("struck", 6), namespace=namespace)
    struck = await training.running(plane.api, namespace, "struck", 6)
    assert not first.process.running
    extender_proxy.hook = None
    extender_proxy.backend = (await site.start_extender()).port
    await plane.api.create(training.job("after", 6), namespace=namespace)
    after = await training.running(plane.api, namespace, "after", 6)
    assert len(nodes_of(struck) | nodes_of(after)) == 12, "no node is given twice"
