"""Topology that the webhook writes into Jobs, decided by a real kube-scheduler that calls no extender."""

import json

import plane_fixtures
import pytest
import pytest_asyncio
from plane import api, commands, conditions, gangs, manifests, waiting
from plane import plane as planes
from plane import site as sites

GROUPS = "scheduling.k8s.io/v1beta1"
POD_GROUP, JOB = f"{GROUPS}/PodGroup", "batch/v1/Job"
POLICY = gangs.policy(gangTopology="required")
TOPOLOGY = "railwright.io/topology"


class Plane(planes.Plane):
    """A control plane in which kube-scheduler places PodGroups, and the Job controller makes them."""

    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
    apis = (GROUPS,)


class PlaneWithoutField(planes.Plane):
    """A control plane that serves PodGroups and drops `spec.scheduling` of Jobs. Volcano schedules nothing in it."""

    rows = planes.Plane.rows[:1]
    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling")
    apis = (GROUPS,)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane():
    async with plane_fixtures.run_plane(Plane) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leaves(module_nodes):
    """Create the nodes for all tests: leaf b holds three pods, spine s0 seven."""
    await gangs.make_leaves(module_nodes, a=2, b=3, c=2)
    await gangs.make_leaves(module_nodes, spine="s1", d=1)


@pytest_asyncio.fixture(loop_scope="session")
async def topologies(plane, namespace, leaves, installed):
    """Wait until the webhook knows nodes and APIs."""
    await wait_for_topology(plane, namespace)


async def wait_for_topology(plane, namespace) -> None:
    async def is_written() -> bool:
        made = await plane.api.create(gangs.job("trial", 2), namespace=namespace, dry_run=True)
        assert read_record(made).get("level"), read_record(made)
        return True

    await waiting.wait(is_written, describe="a topology to be written")


def read_record(job) -> dict:
    return json.loads(job["spec"]["template"]["metadata"]["annotations"][TOPOLOGY])


def read_keys(holder) -> list[str]:
    constraints = holder["spec"].get("schedulingConstraints") or holder["spec"].get("scheduling", {}).get(
        "schedulingConstraints", {}
    )
    return [row["key"] for row in constraints.get("topology", ())]


async def find_leaves(plane, namespace, name, size) -> set[str]:
    """Wait until a Job runs; return the leaves of its pods."""
    pods = await conditions.running(plane.api, namespace, f"{gangs.JOB_NAME}={name}", size)
    assert all("schedulingGroup" in pod["spec"] for pod in pods)
    return {pod["spec"]["nodeName"].partition("-")[0] for pod in pods}


@pytest.mark.parametrize(
    ("size", "keys", "expected"), [(3, [gangs.LEAF], {"b"}), (7, [gangs.SPINE], {"a", "b", "c"})], ids=["leaf", "spine"]
)
@pytest.mark.usefixtures("topologies")
async def test_a_job_runs_in_the_smallest_domain_that_holds_it(plane, namespace, size, keys, expected):
    made = await plane.api.create(gangs.job("t", size), namespace=namespace)
    assert read_keys(made) == keys
    assert await find_leaves(plane, namespace, "t", size) == expected
    (group,) = await plane.api.list(POD_GROUP, namespace)
    assert read_keys(group) == keys
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == size


@pytest.mark.usefixtures("topologies")
async def test_a_job_that_no_domain_holds_is_not_kept_pending(plane, namespace):
    made = await plane.api.create(gangs.job("t", 8), namespace=namespace)
    assert read_record(made)["reason"]["code"] == "TopologyGangTooLarge"
    assert await find_leaves(plane, namespace, "t", 8) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("way", [("apply",), ("apply", "--server-side")], ids="".join)
@pytest.mark.usefixtures("topologies")
async def test_the_unchanged_manifest_may_be_applied_again(plane, namespace, way):
    manifest = json.dumps(gangs.job("t", 2))
    await plane.kubectl(*way, "-n", namespace, "-f", "-", stdin=manifest)
    before = await plane.api.get(JOB, "t", namespace)
    assert read_keys(before) == [gangs.LEAF]
    await plane.kubectl(*way, "-n", namespace, "-f", "-", stdin=manifest)
    after = await plane.api.get(JOB, "t", namespace)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.usefixtures("topologies")
async def test_an_update_without_the_field_is_accepted(plane, namespace):
    made = await plane.api.create(gangs.job("t", 3), namespace=namespace)
    assert await find_leaves(plane, namespace, "t", 3) == {"b"}

    async def replace() -> bool:  # the controller updates the status meanwhile
        stored = await plane.api.get(JOB, "t", namespace)
        without = {key: value for key, value in stored["spec"].items() if key != "scheduling"}
        after = await plane.api.replace({**stored, "spec": without})
        assert after["spec"]["scheduling"] == made["spec"]["scheduling"]
        return True

    await waiting.wait(replace, describe="the update to be accepted")


@pytest.mark.usefixtures("topologies")
async def test_explain_asks_the_cluster_what_a_manifest_would_get(plane, namespace):
    manifest = json.dumps(gangs.job("t", 2))
    options = ("explain", "-f", "-", "-n", namespace)
    _, out, err = await commands.railwright(*options, kubeconfig=plane.kubeconfig, stdin=manifest)
    assert "topology: kube-scheduler decides where the gang runs; TopologyRequested: spec.scheduling" in out, err
    assert await plane.api.get_or_none(JOB, "t", namespace) is None


@pytest.mark.usefixtures("topologies")
async def test_a_suspended_job_keeps_its_field_when_it_is_resumed(plane, namespace):
    job = gangs.job("t", 3)
    job["spec"]["suspend"] = True
    made = await plane.api.create(job, namespace=namespace)
    assert read_keys(made) == [gangs.LEAF]
    await plane.api.patch(JOB, "t", {"spec": {"suspend": False}}, namespace)
    assert await find_leaves(plane, namespace, "t", 3) == {"b"}


@pytest.mark.usefixtures("topologies")
async def test_a_job_that_another_object_controls_gets_no_field(plane, namespace):
    owner = await plane.api.create(manifests.build("ConfigMap", "owner"), namespace=namespace)
    job = gangs.job("t", 2)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    job["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    made = await plane.api.create(job, namespace=namespace)
    assert "scheduling" not in made["spec"] or not read_keys(made)
    assert read_record(made)["reason"]["code"] == "TopologyOfOwner"
    await conditions.running(plane.api, namespace, f"{gangs.JOB_NAME}=t", 2)
    assert not await plane.api.list(POD_GROUP, namespace)


@pytest.mark.parametrize("before", [None, {"topology": [{"key": gangs.SPINE}]}], ids=["none", "spine"])
async def test_the_key_of_a_pod_group_is_immutable(plane, namespace, before):
    """So a webhook could write it at the creation of the PodGroup only, which may come before the workload."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}} | ({"schedulingConstraints": before} if before else {})
    await plane.api.create(
        {"apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}, namespace=namespace
    )
    later = {"spec": {"schedulingConstraints": {"topology": [{"key": gangs.LEAF}]}}}
    with pytest.raises(api.ApiError, match="immutable") as error:
        await plane.api.patch(POD_GROUP, "g", later, namespace)
    assert error.value.status == 422


async def test_a_field_that_the_api_server_drops_is_reported():
    async with plane_fixtures.run_plane(PlaneWithoutField) as plane, plane_fixtures.make_nodes(plane) as nodes:
        await plane.make_namespace("dropped")
        await gangs.make_leaves(nodes, a=2)
        async with sites.running(plane) as site:
            await site.install(POLICY, "dropped")
            await wait_for_topology(plane, "dropped")
            made = await plane.api.create(gangs.job("t", 2), namespace="dropped")
            assert "scheduling" not in made["spec"]
            assert read_record(made)["fields"] == ["/spec/scheduling"]
            pods = await conditions.running(plane.api, "dropped", f"{gangs.JOB_NAME}=t", 2)
            record = json.loads(pods[0]["metadata"]["annotations"]["railwright.io/injection"])
            assert record["skipped"]["topology"]["code"] == "TopologyDropped"
            await conditions.event(plane.api, "dropped", "FabricWarning", "TopologyDropped", of="t")
            warned = await sites.metric(site.webhook, "railwright_webhook_warnings_total", code="TopologyDropped")
            assert warned >= 1
        await plane.remove_namespace("dropped")
