"""Topology that the webhook writes for Volcano, which places by it without an extender."""

import pytest
import pytest_asyncio
from plane import api, conditions, gangs, hypernodes, volcano, waiting

POLICY = gangs.policy(domains=["hypernode/level-1"], gangTopology="required")
POD_GROUP = "scheduling.volcano.sh/v1beta1/PodGroup"
VOLCANO_JOB = "batch.volcano.sh/v1alpha1/Job"
HARD = {"mode": "hard", "highestTierAllowed": 1}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hyper_nodes(plane, module_nodes, module_site):
    """Create leaves of 2, 3 and 2 nodes under one spine, and HyperNodes that Volcano reads."""
    await gangs.make_leaves(module_nodes, a=2, b=3, c=2)
    made = hypernodes.HyperNodes(plane.api)
    await made.tree(s=["a", "b", "c"])
    conf = volcano.conf()
    conf["tiers"][1]["plugins"] = [*conf["tiers"][1]["plugins"], *hypernodes.AWARE]
    await plane.schedulers.volcano(conf=conf)
    yield
    await made.remove()


async def find_leaves(plane, namespace, labels, size) -> set[str]:
    pods = await conditions.wait_running(plane.api, namespace, labels, size, seconds=90)
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods}


@pytest.mark.usefixtures("hyper_nodes", "installed")
async def test_a_volcano_job_runs_in_the_hyper_node_that_holds_it(plane, namespace):
    made = await plane.api.create(gangs.volcano_job("t", 3), namespace=namespace)
    assert made["spec"]["networkTopology"] == HARD
    assert await find_leaves(plane, namespace, f"{gangs.VOLCANO_JOB}=t", 3) == {"b"}


@pytest.mark.usefixtures("hyper_nodes", "installed")
async def test_the_pod_group_of_another_controllers_pods_has_the_constraint(plane, namespace):
    job = gangs.job("t", 3, schedulerName="volcano")
    await plane.api.create(job, namespace=namespace)
    assert await find_leaves(plane, namespace, f"{gangs.JOB_NAME}=t", 3) == {"b"}
    (group,) = await plane.api.list(POD_GROUP, namespace)
    assert group["spec"]["networkTopology"] == HARD
    assert group["spec"]["minMember"] == 3, "the first pod alone might get a leaf without room for the others"


@pytest.mark.usefixtures("hyper_nodes", "installed")
async def test_the_unchanged_manifest_of_a_volcano_job_may_be_sent_again(plane, namespace):
    job = gangs.volcano_job("t", 2)
    made = await plane.api.create(job, namespace=namespace)
    without = {key: value for key, value in made["spec"].items() if key != "networkTopology"}

    async def replace() -> bool:  # the controller updates the status meanwhile
        stored = await plane.api.get(VOLCANO_JOB, "t", namespace)
        try:
            after = await plane.api.replace({**stored, "spec": without})
        except api.ApiError as error:
            if error.status != 409:
                raise
            return False
        assert after["spec"] == stored["spec"]
        return True

    await waiting.wait(replace, describe="the update to be accepted")


@pytest.mark.parametrize("size", [None, 2], ids=["no partitions", "partitions of 2"])
async def test_volcano_rejects_each_other_number_of_replicas_of_a_task_with_partitions(plane, namespace, size):
    """So railwright writes none: a user could no longer resize the Job."""
    job = gangs.volcano_job("t", 4)
    (task,) = job["spec"]["tasks"]
    if size is not None:
        task["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": size}
    await plane.api.create(job, namespace=namespace)
    (stored,) = (await plane.api.get(VOLCANO_JOB, "t", namespace))["spec"]["tasks"]
    for change in (
        {"replicas": 6, "minAvailable": 6},
        {"replicas": 6, "minAvailable": 6, "partitionPolicy": {"totalPartitions": 3, "partitionSize": 2}},
    ):
        resized = plane.api.patch(VOLCANO_JOB, "t", {"spec": {"tasks": [{**stored, **change}]}}, namespace)
        if size is None:
            assert (await resized)["spec"]["tasks"][0]["replicas"] == 6
            return
        with pytest.raises(api.ApiError, match=r"Replicas' are not equal|may not change fields other than"):
            await resized
