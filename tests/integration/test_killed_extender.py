"""Gangs whose extender is killed in the middle, under Volcano. The same under kube-scheduler is in test_kube_gangs.py,
and what replicas do for each other in test_standby.py.
"""

import pytest
from plane import gangs
from plane import site as sites


@pytest.fixture
def kill(volcano_gangs):
    """`kill(call)`: the extender is killed at that allocate; Volcano waits for this very call meanwhile."""
    site = volcano_gangs.site

    def arm(call: int, *, is_restarted: bool = True) -> None:
        last = site.proxy.counts["/volcano/allocate"] + call

        async def hook(request):
            if request.path == "/volcano/allocate" and site.proxy.counts[request.path] == last:
                site.proxy.backend = None
                await site.extender.kill()
                if is_restarted:
                    await site.start_extender()

        site.proxy.hook = hook

    return arm


async def test_a_gang_takes_no_third_leaf_after_a_restart(nodes, volcano_gangs, kill):
    site = volcano_gangs.site
    await gangs.make_leaves(nodes, a=5, b=4, c=4, d=2)
    first = await volcano_gangs.install(httpTimeout="60s")
    kill(6)  # of the nine pods, one is on the second leaf
    struck = await volcano_gangs.run("struck", 9, fabric="required")
    assert not first.process.running, "the extender was to die in the middle of the gang"
    site.proxy.hook = None
    assert len(set(gangs.leaves_of(struck))) == 2, gangs.leaves_of(struck)
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    after = await volcano_gangs.run("after", 4, fabric="required")
    assert len(gangs.runs_of(after)) == 1
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    taken = {*map(gangs.node_of, (*struck, *after))}
    assert len(taken) == 13
    refusals = await gangs.list_refusals(site, sorted(taken), gpus=8)
    assert refusals.keys() == taken, "the restarted extender knows what the cluster holds"


async def test_a_gang_completes_while_the_extender_is_away(nodes, volcano_gangs, kill):
    await gangs.make_leaves(nodes, a=6, b=6)
    first = await volcano_gangs.install()
    kill(3, is_restarted=False)
    struck = await volcano_gangs.run("struck", 6)
    assert not first.process.running
    volcano_gangs.site.proxy.hook = None
    await volcano_gangs.site.start_extender()
    after = await volcano_gangs.run("after", 6)
    assert len({*map(gangs.node_of, (*struck, *after))}) == 12, "no node is given twice"
