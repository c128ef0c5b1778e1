"""kube-scheduler with the example configuration."""

import yaml
from admitting import EXAMPLES
from plane import conditions, gangs, manifests

POLICY = manifests.policy({"rails": manifests.fabric(2, placement={"domains": [gangs.LEAF]})})


def deployment(replicas: int) -> dict:
    pod = manifests.pod(fabric="rails", limits={"nvidia.com/gpu": 1, "cpu": 1})
    return manifests.workload("Deployment", pod, name="serve", replicas=replicas)


async def test_kube_scheduler_accepts_the_example_configuration(plane, namespace, nodes, installed):
    example = yaml.safe_load((EXAMPLES / "schedulers" / "kube-scheduler.yaml").read_text())["extenders"][0]
    local = {"urlPrefix": f"{installed.proxy.url}/scheduler", "enableHTTPS": False}
    await installed.install_extender(POLICY)
    await nodes.make("free-0", rails=gangs.ONE_EACH)
    await plane.schedulers.kube({key: value for key, value in {**example, **local}.items() if key != "tlsConfig"})
    before = installed.proxy.counts["/scheduler/filter"]
    await plane.api.create(deployment(1), namespace=namespace)
    await conditions.wait_running(plane.api, namespace, "app=serve", 1)
    assert installed.proxy.counts["/scheduler/filter"] > before
