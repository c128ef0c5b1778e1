"""The extender is killed during the placement of gangs by Volcano: it restarts at once, or later.

test_kube_gangs.py kills it while kube-scheduler places a gang.
"""

import pytest
from plane import gangs
from plane import site as sites


@pytest.fixture
def kill(volcano_gangs):
    """Return `kill(call)`: kill the extender during the allocate call of that number, while Volcano waits for it."""
    site = volcano_gangs.site

    def kill_during(call: int, *, is_restarted: bool = True) -> None:
        call_number = site.proxy.counts["/volcano/allocate"] + call

        async def hook(request):
            if request.path == "/volcano/allocate" and site.proxy.counts[request.path] == call_number:
                site.proxy.backend = None
                await site.extender.kill()
                if is_restarted:
                    await site.start_extender()

        site.proxy.hook = hook

    return kill_during


async def test_a_gang_stays_on_its_two_leaves_after_a_restart_of_the_extender(nodes, volcano_gangs, kill):
    site = volcano_gangs.site
    await gangs.make_leaves(nodes, a=5, b=4, c=4, d=2)
    first = await volcano_gangs.install(arguments={"httpTimeout": "60s"})
    kill(6)  # of the nine pods, one is on the second leaf
    struck = await volcano_gangs.run("struck", 9)
    assert not first.process.running, "the extender was to die in the middle of the gang"
    site.proxy.hook = None
    assert len(set(gangs.list_leaves(struck))) == 2, gangs.list_leaves(struck)
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    after = await volcano_gangs.run("after", 4)
    assert len(gangs.list_runs(after)) == 1
    await sites.wait_metric(site.extender, "railwright_assumed_pods", 0)
    taken = {*map(gangs.get_node, (*struck, *after))}
    assert len(taken) == 13
    full = await gangs.list_full(site, sorted(taken), gpus=8)
    assert full == taken, "the restarted extender knows what the cluster holds"


async def test_all_pods_of_a_gang_are_placed_although_the_extender_dies_meanwhile(nodes, volcano_gangs, kill):
    await gangs.make_leaves(nodes, a=6, b=6)
    first = await volcano_gangs.install()
    kill(3, is_restarted=False)
    struck = await volcano_gangs.run("struck", 6)
    assert not first.process.running
    volcano_gangs.site.proxy.hook = None
    await volcano_gangs.site.start_extender()
    after = await volcano_gangs.run("after", 6)
    assert len({*map(gangs.get_node, (*struck, *after))}) == 12, "no node is given twice"
