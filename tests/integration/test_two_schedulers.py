"""Gangs of kube-scheduler and Volcano in turns, on the same nodes, with one extender.

Each node has a rail for one pod, and GPUs for several. Each scheduler counts the rails itself.
"""

import pytest
import pytest_asyncio
from plane import commands, gangs, manifests, waiting
from plane import site as sites

SMALL = {"gpus": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def both(plane):
    async with gangs.beside_volcano(plane) as running:
        yield running


class Kube:
    """Creates gangs for kube-scheduler: pods with a label."""

    async def create(self, both, namespace, gang, size):
        pods = gangs.build_gang(gang, size, **SMALL)
        await gangs.release(both.plane.api, namespace, pods, seen_by=both.extender)

    async def bound(self, plane, namespace, gang, size):
        return await gangs.wait_bound(plane.api, namespace, size, f"{gangs.GROUP}={gang}", seconds=120)

    async def delete(self, plane, namespace, gang):
        await remove(plane, namespace, f"{gangs.GROUP}={gang}")


class Volcano:
    """Creates gangs for Volcano: its Jobs."""

    async def create(self, both, namespace, gang, size):
        await both.plane.api.create(gangs.volcano_job(gang, size, **SMALL), namespace=namespace)

    async def bound(self, plane, namespace, gang, size):
        return await gangs.wait_bound(plane.api, namespace, size, f"{gangs.VOLCANO_JOB}={gang}", seconds=120)

    async def delete(self, plane, namespace, gang):
        await plane.api.delete(manifests.VOLCANO_JOB, gang, namespace)
        await remove(plane, namespace, f"{gangs.VOLCANO_JOB}={gang}")


KUBE, VOLCANO = Kube(), Volcano()


async def remove(plane, namespace, labels):
    """Delete pods at once, and wait until they are gone."""

    async def are_gone():
        listed = await plane.api.list("Pod", namespace, labels=labels)
        for pod in listed:
            await plane.api.delete("Pod", pod["metadata"]["name"], namespace, grace=0)
        return not listed

    await waiting.wait(are_gone, describe=f"the pods with {labels} to be gone")


async def assert_each_has_a_node(plane, both, *gangs_of_pods):
    """Assert that no node has two of these pods, and that the extender counts each of them once."""
    taken = [gangs.get_node(pod) for pods in gangs_of_pods for pod in pods]
    assert len(set(taken)) == len(taken), sorted(taken)
    await sites.wait_metric(both.extender, "railwright_assumed_pods", 0)
    await gangs.wait_until_taken(both, *taken)


@pytest.mark.parametrize(("old", "new"), [(KUBE, VOLCANO), (VOLCANO, KUBE)], ids=["to volcano", "to kube-scheduler"])
async def test_a_gang_recreated_for_the_other_scheduler_gets_one_leaf_again(plane, both, nodes, namespace, old, new):
    await gangs.make_leaves(nodes, a=4, b=6)
    await old.create(both, namespace, "train", 4)
    before = await old.bound(plane, namespace, "train", 4)
    await new.create(both, namespace, "other", 3)
    other = await new.bound(plane, namespace, "other", 3)
    await old.delete(plane, namespace, "train")
    # with fewer than four nodes seen free in each leaf, the gang would be split
    await gangs.wait_until_free(both, *map(gangs.get_node, before))
    await new.create(both, namespace, "train", 4)
    after = await new.bound(plane, namespace, "train", 4)
    assert set(gangs.list_leaves(before)) == set(gangs.list_leaves(after)) == {"a"}
    await assert_each_has_a_node(plane, both, after, other)
    said = await commands.explain(plane, both.extender, namespace, after[0]["metadata"]["name"])
    assert (said["gang"]["size"], said["gang"]["leaves"]) == (4, 1), said
