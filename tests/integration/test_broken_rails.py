"""Rails that are broken by their node's annotation or device plugin, under kube-scheduler and Volcano."""

from plane import commands, gangs, waiting

BROKEN = "railwright: the node's annotation railwright.io/broken-rails names rail1"


async def test_a_gang_avoids_a_node_while_a_rail_that_it_needs_is_broken_there(plane, both, nodes, namespace):
    await gangs.make_leaves(nodes, a=3)
    await nodes.mark_broken("a-01", "rail1")
    await gangs.wait_for_refusals(both, {"a-01": BROKEN})
    await gangs.release(plane.api, namespace, gangs.build_gang("train", 3), seen_by=both.extender)
    message = await gangs.wait_event(plane.api, namespace, "train-2", BROKEN)
    assert message.startswith("0/3 nodes are available")

    async def are_bound() -> bool:  # kube-scheduler goes on while a binding is being written
        placed = await plane.api.list("Pod", namespace, labels=f"{gangs.GROUP}=train")
        assert sorted(map(gangs.get_node, placed)) == ["", "a-00", "a-02"]
        return True

    await waiting.wait(are_bound, describe="two of three pods to be bound")
    await nodes.mark_broken("a-01", None)
    await gangs.wait_bound(plane.api, namespace, 3, f"{gangs.GROUP}=train")


async def test_a_node_with_a_broken_rail_takes_pods_that_do_not_need_the_rail(plane, both, nodes, namespace):
    await gangs.make_leaves(nodes, a=1)
    await nodes.mark_broken("a-00", "rail1")
    await gangs.wait_for_refusals(both, {"a-00": BROKEN})
    assert await gangs.place(plane.api, namespace, "p", rails={gangs.RAILS[0]: 1}) == "a-00"


async def test_volcano_places_no_pod_on_a_node_while_a_rail_is_broken_there(plane, both, nodes, namespace):
    await gangs.make_leaves(nodes, a=3)
    await nodes.mark_broken("a-00", "rail1")
    await gangs.wait_for_refusals(both, {"a-00": BROKEN})
    await plane.api.create(gangs.volcano_job("train", 2), namespace=namespace)
    placed = await gangs.wait_bound(plane.api, namespace, 2, f"{gangs.VOLCANO_JOB}=train")
    assert sorted(map(gangs.get_node, placed)) == ["a-01", "a-02"]
    await plane.api.create(gangs.volcano_job("more", 1), namespace=namespace)

    async def is_explained() -> bool:  # Volcano asks about one node after the other
        said = await commands.explain(plane, both.extender, namespace, "more-worker-0")
        (row,) = [row for row in said["nodes"] if row["node"] == "a-00"] or [{}]
        assert row.get("rejection", {}).get("message") == BROKEN.removeprefix("railwright: "), said
        return True

    await waiting.wait(is_explained, describe="the rejection of a-00")
    (waiting_pod,) = await plane.api.list("Pod", namespace, labels=f"{gangs.VOLCANO_JOB}=more")
    assert not gangs.get_node(waiting_pod)
    await nodes.mark_broken("a-00", None)
    (last,) = await gangs.wait_bound(plane.api, namespace, 1, f"{gangs.VOLCANO_JOB}=more")
    assert gangs.get_node(last) == "a-00"
