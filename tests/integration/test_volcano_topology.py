"""Topology that the webhook writes for Volcano, which places by it without an extender."""

import pytest
import pytest_asyncio
from plane import conditions, gangs, hypernodes, volcano

POLICY = gangs.policy(domains=["hypernode/level-1"], gangTopology="required")
POD_GROUP = "scheduling.volcano.sh/v1beta1/PodGroup"
HARD = {"mode": "hard", "highestTierAllowed": 1}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hyper_nodes(plane, module_nodes, module_site):
    """Create leaves of 2, 3 and 2 nodes under one spine, and HyperNodes that Volcano reads."""
    await gangs.make_leaves(module_nodes, a=2, b=3, c=2)
    made = hypernodes.HyperNodes(plane.api)
    await made.tree(s=["a", "b", "c"])
    await plane.schedulers.volcano(volcano.conf(plugins=hypernodes.AWARE))
    yield
    await made.remove()


async def find_leaves(plane, namespace, labels, size) -> set[str]:
    pods = await conditions.wait_running(plane.api, namespace, labels, size, seconds=90)
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods}


@pytest.mark.usefixtures("hyper_nodes", "installed")
async def test_a_volcano_job_runs_in_a_hyper_node_with_room_for_all_pods(plane, namespace):
    made = await plane.api.create(gangs.volcano_job("t", 3), namespace=namespace)
    assert made["spec"]["networkTopology"] == HARD
    assert await find_leaves(plane, namespace, f"{gangs.VOLCANO_JOB}=t", 3) == {"b"}


@pytest.mark.usefixtures("hyper_nodes", "installed")
async def test_volcanos_pod_group_for_a_job_of_kubernetes_has_the_topology_constraint(plane, namespace):
    job = gangs.job("t", 3, schedulerName="volcano")
    await plane.api.create(job, namespace=namespace)
    assert await find_leaves(plane, namespace, f"{gangs.JOB_NAME}=t", 3) == {"b"}
    (group,) = await plane.api.list(POD_GROUP, namespace)
    assert group["spec"]["networkTopology"] == HARD
    assert group["spec"]["minMember"] == 3, "the first pod alone might get a leaf without room for the others"
