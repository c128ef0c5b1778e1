"""Access to explanations of placements, and Events of the extender's account on the PodGroup."""

import functools

import pytest_asyncio
from plane import commands, conditions, gangs, manifests, waiting
from plane import site as sites

PLACEMENT = {"domains": [gangs.LEAF], "oversubscription": [4]}
POLICY = manifests.policy({"ib": manifests.fabric(placement=PLACEMENT)})
RAIL = {gangs.RAILS[0]: 1}
PATIENCE = 90  # seconds: the gang has to wait for ten, and the machine may be busy


@pytest_asyncio.fixture(loop_scope="session")
async def extender(module_site):
    return await module_site.install_extender(POLICY)


async def test_only_users_with_the_right_to_get_a_pod_may_read_its_explanation(plane, namespace, nodes, extender):
    await nodes.make("gpu-0", rails=RAIL)
    await nodes.make("bare-0", rails={})
    await sites.wait_metric(extender, "railwright_cache_objects", 2, kind="nodes")
    explain = functools.partial(commands.request_explanation, plane, extender, namespace, "asked")
    token = await commands.make_token(plane, namespace)
    assert (await explain())[0] == 401
    assert (await explain("nonsense"))[0] == 401
    status, refused = await explain(token)
    assert status == 403
    assert f"may not get pods in namespace {namespace}" in refused["error"]["reason"]

    await commands.make_reader(plane, namespace)

    async def is_permitted():
        status, _ = await explain(token)
        assert status == 404, status
        return True

    await waiting.wait(is_permitted, describe="the role binding to be in force")
    asked = manifests.pod("asked", "ib", limits=RAIL, schedulerName="nobody")
    await plane.api.create(asked, namespace=namespace)

    async def is_explained() -> dict:  # though no scheduler has asked about it
        status, explanation = await explain(token)
        assert status == 200, explanation
        return explanation

    explanation = await waiting.wait(is_explained, describe="the extender to see the pod")
    assert explanation["fabric"] == "ib"
    rows = {row["node"]: row for row in explanation["nodes"]}
    assert rows["gpu-0"].get("fits", True)
    assert "rail0 has 0 of 0 free" in rows["bare-0"]["reasons"][0]["message"], rows


class Gang:
    """Pods of one Volcano PodGroup without a scheduler; the test calls the extender and binds, as a scheduler does."""

    def __init__(self, plane, namespace: str, extender, name: str, size: int):
        self.plane, self.namespace, self.name, self.size = plane, namespace, name, size
        self.extender = extender

    async def make(self):
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": self.name}}
        made = await self.plane.api.create({**group, "spec": {"minMember": self.size}}, namespace=self.namespace)
        self.uid = made["metadata"]["uid"]
        self.pods = []
        for rank in range(self.size):
            kinds = {
                "limits": {"nvidia.com/gpu": 8, **RAIL},
                "annotations": {"scheduling.k8s.io/group-name": self.name},
            }
            spec = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0}
            tree = manifests.pod(f"{self.name}-{rank}", "ib", **kinds, **spec)
            self.pods.append(await self.plane.api.create(tree, namespace=self.namespace))
        return self

    async def ask(self, rank: int, nodes: list[str]) -> None:
        body = {"Pod": self.pods[rank], "Nodes": None, "NodeNames": nodes}
        url = f"http://127.0.0.1:{self.extender.port}/scheduler/prioritize"
        async with self.plane.session.post(url, json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def bind(self, rank: int, node: str) -> None:
        pod = self.pods[rank]["metadata"]["name"]
        target = {"kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        await self.plane.api.request("POST", f"/api/v1/namespaces/{self.namespace}/pods/{pod}/binding", body=body)

    async def wait_for_event(self, reason: str) -> dict:
        """Wait until the extender has written an Event with this reason on the PodGroup, and return it."""
        return await conditions.wait_event(self.plane.api, self.namespace, reason, seconds=PATIENCE)

    async def explain(self) -> dict:
        """Return the extender's explanation of the gang."""
        return (await commands.explain(self.plane, self.extender, self.namespace, f"{self.name}-0"))["gang"]


async def test_only_a_gang_that_never_fits_gets_an_event_on_its_pod_group(plane, namespace, nodes, extender):
    await gangs.make_leaves(nodes, RAIL, a=3)
    holder = await Gang(plane, namespace, extender, "llm", 1).make()
    await holder.bind(0, "a-02")
    gang = await Gang(plane, namespace, extender, "train", 3).make()

    async def is_counted_as_held():
        told = await gang.explain()
        assert told["state"] == "waiting", told
        assert told["why"][0]["message"] == "3 pods remain, each with rail0; the cluster has slots for 2"
        assert f"nvidia.com/gpu on a-02 is used by {namespace}/llm-0" in told["why"][-1]["message"]
        return True

    await waiting.wait(is_counted_as_held, describe="the gang to be told waiting", seconds=PATIENCE)
    large = await Gang(plane, namespace, extender, "large", 4).make()
    event = await large.wait_for_event("GangNeverFits")
    assert event["type"] == "Warning"
    involved = event["involvedObject"]
    assert (involved["kind"], involved["name"], involved["uid"]) == ("PodGroup", "large", large.uid)
    assert involved["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert "it needs 4 slots, and without any other pod the eligible nodes have 3" in event["message"]
    described = await plane.kubectl("describe", "podgroups.scheduling.volcano.sh", "large", "-n", namespace)
    assert "GangNeverFits" in described
    assert (await large.explain())["state"] == "never"
