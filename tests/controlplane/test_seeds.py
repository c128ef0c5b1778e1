"""Rows of real deployments: the job with one label is admitted, by the real API server, as written by hand."""

import json

from plane import seeds, volcano, waiting

MULTUS = seeds.MULTUS
RAILS = {f"spidernet.io/shared_cx6_rail{rail}": 100 for rail in range(4)}


async def running(plane, namespace: str, labels: str, count: int) -> list[dict]:
    async def all_running():
        pods = await plane.api.list("Pod", namespace, labels=labels)
        states = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
        assert list(states.values()) == ["Running"] * count, states
        return sorted(pods, key=lambda pod: pod["metadata"]["name"])

    return await waiting.wait(all_running, seconds=60, describe=f"{count} running pods with {labels}")


async def removed(plane, kind: str, name: str, namespace: str, labels: str) -> None:
    await plane.api.delete(kind, name, namespace)

    async def nothing_left():
        left = await plane.api.list("Pod", namespace, labels=labels)
        return not left and await plane.api.get_or_none(kind, name, namespace) is None

    await waiting.wait(nothing_left, describe=f"{kind} {name} and its pods to be gone")


async def test_vivos_pods_share_a_node_each_with_its_own_rails_and_host_network_is_warned_about(
    plane, nodes, row, site, schedulers
):
    kind = "batch.volcano.sh/v1alpha1/Job"
    namespace = await row("vivo-roce")
    await site.policy(seeds.policy("vivo-roce"))
    await site.start_webhook()
    await site.register(namespace)
    await schedulers.volcano(conf=volcano.conf())
    await nodes.make("gpu-0", rails=RAILS)
    pods = {}
    for source in ("handwritten", "job"):
        name = f"llm-{source}"
        await plane.api.create(seeds.job("vivo-roce", source, name, namespace))
        pods[source] = await running(plane, namespace, f"volcano.sh/job-name={name}", 2)
        await removed(plane, kind, name, namespace, f"volcano.sh/job-name={name}")
    for ours, by_hand in zip(pods["job"], pods["handwritten"], strict=True):
        assert seeds.meaning(ours, "llm-job") == seeds.meaning(by_hand, "llm-handwritten")
    assert {pod["spec"]["nodeName"] for pod in pods["job"]} == {"gpu-0"}, "two pods of four GPUs, one node of eight"
    for pod in pods["job"]:
        assert pod["metadata"]["annotations"][MULTUS].count("@net") == 4
        assert json.loads(pod["metadata"]["annotations"]["railwright.io/placement"])["node"] == "gpu-0"

    still = seeds.job("vivo-roce", "job", "llm-host", namespace)
    template = still["spec"]["tasks"][0]["template"]
    bare = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "host", "namespace": namespace, "labels": template["metadata"]["labels"]},
        "spec": template["spec"] | {"hostNetwork": True, "schedulerName": "none"},
    }
    created = await plane.api.create(bare)
    assert MULTUS not in created["metadata"]["annotations"]
    assert any("hostNetwork is true: fabric roce adds no networks" in each for each in plane.api.warnings)
