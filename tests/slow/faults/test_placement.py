"""Faults of nodes, devices and pods, with both real schedulers and the extender."""

from plane import gangs, waiting
from plane import site as sites


async def test_43_a_recreated_node_counts_in_the_leaf_of_its_new_label(plane, both, nodes, namespace):
    await nodes.make("again", rails=gangs.ONE_EACH, labels={gangs.LEAF: "old"})
    assert await gangs.place(plane.api, namespace, "holder", gpus=0) == "again"
    await nodes.remove("again")
    await nodes.make("again", rails=gangs.ONE_EACH, labels={gangs.LEAF: "new"})
    await gangs.wait_until_taken(both, "again")
    await plane.api.create(gangs.pod("next", labels={"name": "next"}, gpus=0), namespace=namespace)
    await gangs.wait_event(plane.api, namespace, "next", gangs.SHORT)
    await plane.api.delete("Pod", "holder", namespace, grace=0)
    assert await gangs.wait_for_node(plane.api, namespace, "next") == "again"
    await gangs.make_leaves(nodes, tight=3, wide=5)
    await nodes.remove("tight-02")
    await nodes.make("tight-02", rails=gangs.ONE_EACH, labels={gangs.LEAF: "wide", gangs.SPINE: "s0"})
    placed = {gangs.get_node(pod) for pod in await gangs.run_gang(both, namespace, "train", 3)}
    assert placed.isdisjoint({"tight-00", "tight-01"}), placed


async def test_50_replacement_pods_of_a_lost_node_stay_in_the_leaf_of_their_gang(plane, both, nodes, namespace):
    await gangs.make_leaves(nodes, peers=6)
    peers = [f"peers-{index:02}" for index in range(6)]
    before = both.proxy.counts["/volcano/allocate"]
    lost: list[str] = []

    async def lose(request):
        if request.path == "/volcano/allocate" and both.proxy.counts[request.path] == before + 3:
            lost.append(min(await gangs.list_full(both, peers)))
            await nodes.remove(lost[0])
            await gangs.make_leaves(nodes, tighter=4)  # where all four would go if none of them were placed yet

    async def is_complete():
        listed = await plane.api.list("Pod", namespace, labels=f"{gangs.VOLCANO_JOB}=gang")
        for pod in listed:  # what pod garbage collection does after 40 s
            if lost and gangs.get_node(pod) in lost and "deletionTimestamp" not in pod["metadata"]:
                await plane.api.delete("Pod", pod["metadata"]["name"], namespace, grace=0)
                stranded.append(pod["metadata"]["name"])
        on = [gangs.get_node(pod) for pod in listed]
        assert len(on) == 4, on
        assert all(on), on
        assert not set(on) & set(lost), on
        return listed

    stranded: list[str] = []
    both.proxy.hook = lose
    await plane.api.create(gangs.volcano_job("gang", 4, gpus=0), namespace=namespace)
    await waiting.wait(lambda: lost, describe="a node to be lost in the middle of the gang")
    both.proxy.hook = None
    gang = await waiting.wait(is_complete, seconds=60, describe="the gang to be whole on nodes that are there")
    assert set(gangs.list_leaves(gang)) == {"peers"}, gangs.list_leaves(gang)
    await sites.wait_metric(both.extender, "railwright_assumed_pods", 0)

    await both.extender.kill()
    await both.start_extender()
    taken = {gangs.get_node(pod) for pod in gang}
    assert await gangs.list_full(both, [name for name in peers if name not in lost]) == taken
    gone = gang[1]["metadata"]
    await plane.api.delete("Pod", gone["name"], namespace, grace=0)

    async def is_complete_again():
        members = await is_complete()
        assert gone["uid"] not in {pod["metadata"]["uid"] for pod in members}
        return members

    gang = await waiting.wait(is_complete_again, seconds=60, describe="the gang to be whole again")
    assert set(gangs.list_leaves(gang)) == {"peers"}, gangs.list_leaves(gang)
