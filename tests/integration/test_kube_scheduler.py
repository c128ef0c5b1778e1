"""A Deployment placed by kube-scheduler, which counts the rails and says what is short."""

import yaml
from admitting import EXAMPLES
from plane import conditions, gangs, manifests
from plane import site as sites

POLICY = manifests.policy({"rails": manifests.fabric(2, placement={"domains": [gangs.LEAF]})})


def deployment(replicas: int) -> dict:
    pod = manifests.pod(fabric="rails", limits={"nvidia.com/gpu": 1, "cpu": 1})
    return manifests.workload("Deployment", pod, name="serve", replicas=replicas)


async def test_a_pod_gets_the_free_node_and_the_next_one_waits_for_rails(plane, namespace, nodes, installed):
    extender = await installed.install_extender(POLICY)
    await nodes.make("free-0", rails=gangs.ONE_EACH)
    await nodes.make("busy-0", rails=gangs.ONE_EACH)
    await nodes.make("bare-0", rails={})
    await plane.api.create(manifests.holder("busy-0", {gangs.RAILS[1]: 1}), namespace=namespace)
    await plane.schedulers.kube(gangs.entry(installed.proxy.url))
    await sites.wait_metric(extender, "railwright_rail_devices", 1, fabric="rails", rail="rail1", state="busy")

    await plane.api.create(deployment(1), namespace=namespace)
    (pod,) = await conditions.running(plane.api, namespace, "app=serve", 1)
    assert pod["spec"]["nodeName"] == "free-0"

    await plane.api.patch("Deployment", "serve", {"spec": {"replicas": 2}}, namespace)
    shortages = (f"2 {gangs.SHORT}", f"3 Insufficient {gangs.RAILS[1]}")
    await conditions.event(plane.api, namespace, "FailedScheduling", *shortages)


async def test_kube_scheduler_accepts_the_example_configuration(plane, namespace, nodes, installed):
    example = yaml.safe_load((EXAMPLES / "schedulers" / "kube-scheduler.yaml").read_text())["extenders"][0]
    local = {"urlPrefix": f"{installed.proxy.url}/scheduler", "enableHTTPS": False}
    await installed.install_extender(POLICY)
    await nodes.make("free-0", rails=gangs.ONE_EACH)
    await plane.schedulers.kube({key: value for key, value in {**example, **local}.items() if key != "tlsConfig"})
    before = installed.proxy.counts["/scheduler/filter"]
    await plane.api.create(deployment(1), namespace=namespace)
    await conditions.running(plane.api, namespace, "app=serve", 1)
    assert installed.proxy.counts["/scheduler/filter"] > before
