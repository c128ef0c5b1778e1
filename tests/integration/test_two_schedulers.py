"""Gangs of kube-scheduler and Volcano in turns, on the same nodes, with one extender.

Each node has a rail for one pod, and GPUs for several. Each scheduler counts the rails itself.
"""

import pytest
from plane import commands, gangs, manifests, waiting
from plane import site as sites

SMALL = {"gpus": 2}
LABELS = (gangs.GROUP, gangs.VOLCANO_JOB)  # of the pods of a gang, by its scheduler


async def run(both, namespace, label, gang, size):
    """Create a Job of Volcano, or pods with a common label for kube-scheduler; return the bound pods."""
    if label == gangs.VOLCANO_JOB:
        await both.plane.api.create(gangs.volcano_job(gang, size, **SMALL), namespace=namespace)
    else:
        await gangs.release(both.plane.api, namespace, gangs.build_gang(gang, size, **SMALL), seen_by=both.extender)
    return await gangs.wait_bound(both.plane.api, namespace, size, f"{label}={gang}", seconds=120)


async def remove(client, namespace, label, gang):
    """Delete a gang with its Job if it has one, and wait until its pods are gone."""
    await client.delete(manifests.VOLCANO_JOB, gang, namespace)

    async def are_gone():
        listed = await client.list("Pod", namespace, labels=f"{label}={gang}")
        for pod in listed:
            await client.delete("Pod", pod["metadata"]["name"], namespace, grace=0)
        return not listed

    await waiting.wait(are_gone, describe=f"the pods of {gang} to be gone")


async def assert_each_has_a_node(both, *gangs_of_pods):
    """Assert that no node has two of these pods, and that the extender counts each of them once."""
    taken = [gangs.get_node(pod) for pods in gangs_of_pods for pod in pods]
    assert len(set(taken)) == len(taken), sorted(taken)
    await sites.wait_metric(both.extender, "railwright_assumed_pods", 0)
    await gangs.wait_until_taken(both, *taken)


@pytest.mark.parametrize(("old", "new"), [LABELS, LABELS[::-1]], ids=["to volcano", "to kube-scheduler"])
async def test_a_gang_recreated_for_the_other_scheduler_gets_one_leaf_again(plane, both, nodes, namespace, old, new):
    await gangs.make_leaves(nodes, a=4, b=6)
    before = await run(both, namespace, old, "train", 4)
    other = await run(both, namespace, new, "other", 3)
    await remove(plane.api, namespace, old, "train")
    # with fewer than four nodes seen free in each leaf, the gang would be split
    await gangs.wait_until_free(both, *map(gangs.get_node, before))
    after = await run(both, namespace, new, "train", 4)
    assert set(gangs.list_leaves(before)) == set(gangs.list_leaves(after)) == {"a"}
    await assert_each_has_a_node(both, after, other)
    said = await commands.explain(plane, both.extender, namespace, after[0]["metadata"]["name"])
    assert (said["gang"]["size"], said["gang"]["leaves"]) == (4, 1), said
