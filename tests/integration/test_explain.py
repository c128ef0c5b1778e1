"""Access to explanations of placements, and Events of the extender's account on the PodGroup."""

import json

import pytest_asyncio
from plane import commands, conditions, gangs, manifests, waiting
from plane import site as sites

PLACEMENT = {"rails": "required", "domains": [gangs.LEAF], "oversubscription": [4]}
POLICY = manifests.policy({"ib": manifests.fabric(placement=PLACEMENT)})
RAIL = {gangs.RAILS[0]: 1}
PATIENCE = 90  # seconds: the gang has to wait for ten, and the machine may be busy


def question(namespace: str) -> dict:
    pod = manifests.pod("asked", "ib", container={"resources": {"requests": {gangs.RAILS[0]: "1"}}})
    pod["metadata"] |= {"namespace": namespace, "uid": "u"}
    return {"Pod": pod, "Nodes": None, "NodeNames": ["gpu-0", "bare-0"]}


@pytest_asyncio.fixture(loop_scope="session")
async def extender(module_site):
    return await module_site.install_extender(POLICY)


async def test_an_explanation_is_for_those_who_may_get_the_pod(plane, namespace, nodes, extender):
    await nodes.make("gpu-0", rails=RAIL)
    await nodes.make("bare-0", rails={})
    await sites.wait_metric(extender, "railwright_cache_objects", 2, kind="nodes")
    url = f"http://127.0.0.1:{extender.port}"

    async def explain(authorization: str | None) -> tuple[int, dict]:
        headers = {"Authorization": authorization} if authorization else {}
        async with plane.session.get(f"{url}/explain/{namespace}/asked", headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    bearer = f"Bearer {await commands.make_token(plane, namespace)}"
    assert (await explain(None))[0] == 401
    assert (await explain("Bearer nonsense"))[0] == 401
    status, refused = await explain(bearer)
    assert status == 403
    assert f"may not get pods in namespace {namespace}" in refused["error"]["reason"]
    code, out, err = await Gang(plane, namespace, extender, "any", 1).explain(bearer.removeprefix("Bearer "), 0)
    assert (code, out) == (2, "")
    assert f"may not get pods in namespace {namespace}" in err

    await commands.make_reader(plane, namespace)

    async def is_permitted():
        status, _ = await explain(bearer)
        assert status == 404, status
        return True

    await waiting.wait(is_permitted, describe="the role binding to be in force")
    async with plane.session.post(f"{url}/scheduler/filter", json=question(namespace)) as answer:
        assert (await answer.json())["NodeNames"] == ["gpu-0"]
    status, explanation = await explain(bearer)
    assert status == 200
    assert explanation["fabric"] == "ib"
    refused = {row["node"]: row.get("rejection", {}).get("message", "") for row in explanation["nodes"]}
    assert refused["gpu-0"] == ""
    assert "cannot give rail0" in refused["bare-0"]


class Gang:
    """Pods of one Volcano PodGroup that nobody schedules; the test asks the extender and binds, as a scheduler does."""

    def __init__(self, plane, namespace: str, extender, name: str, size: int):
        self.plane, self.namespace, self.name, self.size = plane, namespace, name, size
        self.url = f"http://127.0.0.1:{extender.port}"

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
        async with self.plane.session.post(f"{self.url}/scheduler/prioritize", json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def bind(self, rank: int, node: str) -> None:
        pod = self.pods[rank]["metadata"]["name"]
        target = {"kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        await self.plane.api.request("POST", f"/api/v1/namespaces/{self.namespace}/pods/{pod}/binding", body=body)

    async def wait_for_event(self, reason: str) -> dict:
        """Wait until the extender has written an Event with this reason on the PodGroup, and return it."""
        return await conditions.event(self.plane.api, self.namespace, reason, seconds=PATIENCE)

    async def explain(self, bearer: str, rank: int, *options: str) -> tuple[int, str, str]:
        words = ("explain", "pod", f"{self.namespace}/{self.name}-{rank}", "--extender", self.url, "--token-file", "-")
        return await commands.railwright(*words, *options, stdin=bearer)


@pytest_asyncio.fixture(loop_scope="session")
async def reader(plane, namespace):
    """Return a token of whom may get pods in the test's namespace."""
    return await commands.make_reader(plane, namespace)


async def test_an_unplaceable_gang_is_an_event_on_its_pod_group(plane, namespace, nodes, extender, reader):
    (names,) = await gangs.make_leaves(nodes, RAIL, a=3)
    holder = await Gang(plane, namespace, extender, "llm", 1).make()
    await holder.bind(0, "a-02")
    gang = await Gang(plane, namespace, extender, "train", 3).make()

    async def seen_as_held():
        await gang.ask(0, names)
        code, out, err = await gang.explain(reader, 0, "-o", "json")
        assert code == 1, out + err
        explanation = json.loads(out)
        assert explanation["outcome"] == "unplaceable"
        assert explanation["why"][0]["message"] == "3 pods remain, each with rail0; the cluster has slots for 2"
        return True

    await waiting.wait(seen_as_held, describe="the gang to be told unplaceable", seconds=PATIENCE)
    event = await gang.wait_for_event("GangUnplaceable")
    assert event["type"] == "Warning"
    involved = event["involvedObject"]
    assert (involved["kind"], involved["name"], involved["uid"]) == ("PodGroup", "train", gang.uid)
    assert involved["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert f"a-02 is used by {namespace}/llm-0" in event["message"]
    described = await plane.kubectl("describe", "podgroups.scheduling.volcano.sh", "train", "-n", namespace)
    assert "GangUnplaceable" in described
    code, out, _ = await gang.explain(reader, 0)
    assert code == 1
    assert "unplaceable" in out
    assert f"nvidia.com/gpu on a-02 is used by {namespace}/llm-0" in out
