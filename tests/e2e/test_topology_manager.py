"""Kubelet's topology manager on two NUMA nodes: it rejects exactly the pods for which the extender has foretold it.

Generated pods come one after another, on both nodes at once, each with another scope. Before each, a report of the
devices in use is written, as an exporter does it; the extender is asked as kube-scheduler asks it, and foretells a
rejection by the score 0; then the pod is bound to the node in any case, and kubelet decides.
"""

import asyncio
import random
import time

import pytest
from plane import conditions, waiting
from realnode import layout, pods, topology

GPU, RAILS = "nvidia.com/gpu", [f"nvidia.com/{layout.name_device(rail)}" for rail in range(layout.RAILS)]
SCOPES = dict(zip(layout.NODES, ("container", "pod"), strict=True))
PODS = 12  # of each node and policy
STRICT = ("restricted", "single-numa-node")


def generate_pod(number: random.Random, name: str, free_gpus: int) -> dict:
    """Return a pod of one or two containers with GPUs that the node has free, and with one to three rails."""
    containers = []
    for index in range(number.choice((1, 1, 2))):
        gpus = number.randint(0 if index else 1, max(1, min(6, free_gpus)))
        chosen = number.sample(RAILS, number.choice((1, 1, 2, 2, 3)))
        if gpus > free_gpus:
            break
        free_gpus -= gpus
        limits = {GPU: str(gpus)} if gpus else {}
        containers.append({"name": f"c{index}", "limits": limits | dict.fromkeys(chosen, "1")})
    pod = pods.describe(name, "none")
    (main,) = pod["spec"]["containers"]
    command = ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"]
    pod["spec"]["containers"] = [
        {**main, "name": container["name"], "command": command, "resources": {"limits": container["limits"]}}
        for container in containers
    ]
    return pod


def list_free(report: dict) -> list[dict]:
    """Return what the report has as available in each NUMA node, of the resources that generated pods request."""
    return [
        {resource["name"]: resource["available"] for resource in zone["resources"] if resource["name"] in (GPU, *RAILS)}
        for zone in report["zones"]
    ]


class Trial:
    """Generated pods on one node, and what the extender and kubelet make of each."""

    def __init__(self, installed, namespace, node, policy):
        self.installed, self.api = installed, installed.plane.api
        self.namespace, self.node, self.policy = namespace, node, policy
        self.number = random.Random(f"{policy} {SCOPES[node.name]}")  # noqa: S311 - the same pods in each run
        self.running = {}  # by name: UID and number of GPUs
        self.mismatches, self.rejected = [], 0

    async def run(self):
        await topology.set_policy(self.api, self.node, self.policy, SCOPES[self.node.name])
        for index in range(PODS):
            while self.running and (self.count_free() == 0 or self.number.random() < 0.4):
                await self.delete(self.number.choice(sorted(self.running)))
            await self.try_pod(f"{self.node.name}-{index}")
        return self

    def count_free(self):
        return 8 - sum(gpus for _, gpus in self.running.values())

    async def try_pod(self, name):
        pod = generate_pod(self.number, name, self.count_free())
        limits = [container["resources"]["limits"] for container in pod["spec"]["containers"]]
        report = await self.write_report()
        labels = {"railwright.io/fabric": "roce"}
        asked = {**pod, "metadata": {**pod["metadata"], "labels": labels}}
        is_foretold = await self.installed.ranks_last(asked, self.namespace, self.node.name)
        pod["spec"]["nodeName"] = self.node.name
        decision, uid = await self.create(pod)
        self.rejected += bool(decision)
        if is_foretold != bool(decision) or (decision and decision != "TopologyAffinityError"):
            self.mismatches.append(
                f"{self.policy}, scope {SCOPES[self.node.name]}: {limits}; extender: "
                f"{'comes last' if is_foretold else 'accepted'}; "
                f"kubelet: {decision or 'accepted'}; free: {list_free(report)}"
            )
        if not decision:
            self.running[name] = uid, sum(int(limit.get(GPU, 0)) for limit in limits)

    async def write_report(self):
        """Write the node's report in a later second than the last binding: only then it counts as current."""
        await asyncio.sleep(1.05 - time.time() % 1)
        report = topology.describe_report(self.node, {uid for uid, _ in self.running.values()})
        await topology.write_report(self.api, report)
        await asyncio.sleep(0.4)  # until the extender's watch has it
        return report

    async def create(self, pod):
        """Return kubelet's reason for rejecting the pod, empty if it was admitted, and the pod's UID."""
        created = await self.api.create(pod, namespace=self.namespace)
        uid, name = created["metadata"]["uid"], created["metadata"]["name"]

        async def find_decision():
            status = (await self.api.get("Pod", name, self.namespace))["status"]
            if status.get("phase") == "Failed":
                return (status.get("reason", "unknown"),)
            containers = {container["name"] for container in pod["spec"]["containers"]}
            return ("",) if topology.list_containers(self.node, uid) == containers else None

        (decision,) = await waiting.wait(find_decision, describe=f"kubelet to decide about {name}")
        if decision:
            await self.api.delete("Pod", name, self.namespace, grace=0)
        return decision, uid

    async def delete(self, name):
        """Delete a pod; returns when kubelet has ended it, and its devices are free."""
        del self.running[name]
        await self.api.delete("Pod", name, self.namespace, grace=1)
        await conditions.gone(self.api, "Pod", name, self.namespace)


@pytest.fixture
async def trial_namespace(installed, pod_namespace):
    """Yield a namespace for generated pods; afterwards the nodes have no reports and their usual policy."""
    yield pod_namespace
    for name in layout.NODES:
        await installed.plane.api.delete_all("Pod", pod_namespace, grace=0)
        await installed.plane.api.delete(topology.KIND, name)
        await topology.set_policy(installed.plane.api, installed.site.nodes[name], "none", "container")


@pytest.mark.parametrize("policy", [*STRICT, "best-effort", "none"])
async def test_kubelet_rejects_the_pods_that_the_extender_predicts(installed, trial_namespace, policy):
    trials = [Trial(installed, trial_namespace, installed.site.nodes[name], policy) for name in layout.NODES]
    for trial in await asyncio.gather(*(trial.run() for trial in trials)):
        assert trial.mismatches == [], "\n".join(trial.mismatches)
        if policy in STRICT:
            assert 1 <= trial.rejected < PODS, "both answers occur"
        else:
            assert trial.rejected == 0
