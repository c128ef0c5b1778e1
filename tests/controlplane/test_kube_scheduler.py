"""A Deployment placed by kube-scheduler: our filter refuses, our sentence reaches the user."""

import asyncio
import json

import yaml
from admitting import EXAMPLES
from plane import kube as kubes
from plane import waiting

RAILS = kubes.RAILS
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  rails:
    transport: infiniband
    rails:
    - {name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
    - {name: rail1, resource: nvidia.com/mlx5_1, device: mlx5_1}
    placement:
      rails: required
      domains: [fabric.topograph.run/tier-0]
"""


def deployment(replicas: int) -> dict:
    labels = {"app": "serve"}
    container = {"name": "server", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, "railwright.io/fabric": "rails"}},
                "spec": {"containers": [container]},
            },
        },
    }


async def test_the_event_says_why_nodes_are_refused(plane, namespace, nodes, site, schedulers, extender_proxy):
    one_each = {RAILS[0]: 1, RAILS[1]: 1}
    await nodes.make("free-0", rails=one_each)
    await nodes.make("busy-0", rails=one_each)
    await nodes.make("bare-0", rails={})
    holder = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "holder"},
        "spec": {
            "nodeName": "busy-0",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {RAILS[1]: "1"}}}],
        },
    }
    await plane.api.create(holder, namespace=namespace)
    await site.policy(POLICY)
    _, extender = await asyncio.gather(site.start_webhook(), site.start_extender())
    extender_proxy.backend = extender.port
    await site.register(namespace)
    # kube-scheduler leaves the rails to us, so that nobody but us can refuse a node for them
    await schedulers.kube(kubes.entry(extender_proxy.url, ignored=True))

    await plane.api.create(deployment(1), namespace=namespace)

    async def list_running():
        pods = await plane.api.list("Pod", namespace, labels="app=serve")
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    (pod,) = await waiting.wait(list_running, describe="the first replica to run")
    assert pod["spec"]["nodeName"] == "free-0"
    written = json.loads(pod["metadata"]["annotations"]["railwright.io/placement"])
    assert (written["node"], written["rails"]) == ("free-0", ["rail0", "rail1"])

    await plane.api.patch("Deployment", "serve", {"spec": {"replicas": 2}}, namespace)

    sentences = (
        "railwright: rail0 is busy: 0 of 1 nvidia.com/mlx5_0 free, 1 needed",
        "railwright: rail1 is busy: 0 of 1 nvidia.com/mlx5_1 free, 1 needed",
        "railwright: the node cannot give rail0: 1 nvidia.com/mlx5_0 needed, 0 allocatable",
    )

    async def event():
        events = await plane.api.list("Event", namespace, fields="reason=FailedScheduling")
        messages = [event.get("message", "") for event in events]
        assert any(all(sentence in message for sentence in sentences) for message in messages), messages
        return True

    await waiting.wait(event, describe="a FailedScheduling event with our sentences", seconds=60)


async def test_kube_scheduler_accepts_the_example_configuration(
    plane, namespace, nodes, site, schedulers, extender_proxy
):
    example = yaml.safe_load((EXAMPLES / "schedulers" / "kube-scheduler.yaml").read_text())["extenders"][0]
    local = {"urlPrefix": f"{extender_proxy.url}/scheduler", "enableHTTPS": False}
    entry = {key: value for key, value in {**example, **local}.items() if key != "tlsConfig"}
    await nodes.make("free-0", rails={RAILS[0]: 1, RAILS[1]: 1})
    await site.policy(POLICY)
    _, extender = await asyncio.gather(site.start_webhook(), site.start_extender())
    extender_proxy.backend = extender.port
    await site.register(namespace)
    await schedulers.kube(entry)
    await plane.api.create(deployment(1), namespace=namespace)

    async def list_running():
        pods = await plane.api.list("Pod", namespace, labels="app=serve")
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    assert await waiting.wait(list_running, describe="the replica to run")
    assert extender_proxy.counts["/scheduler/filter"] >= 1
