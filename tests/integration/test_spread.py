"""The real kube-scheduler spreads the replicas of our Deployments: never two on one node while there are two nodes,
and all of them where there is one, also while they are replaced.
"""

import yaml
from plane import site, waiting

NAME = "webhook"  # tests/unit/threats shows that all Deployments have the same constraints


def read_shipped(kind: str) -> dict:
    """Return the one object of a kind in the manifest of the webhook, without its namespace."""
    documents = yaml.safe_load_all((site.BASE / f"{NAME}.yaml").read_text())
    (document_of_kind,) = [document for document in documents if document["kind"] == kind]
    del document_of_kind["metadata"]["namespace"]
    return document_of_kind


def build_deployment() -> dict:
    """Return the shipped Deployment for a test namespace, without references to objects of the installation."""
    made = read_shipped("Deployment")
    pod = made["spec"]["template"]["spec"]
    for key in ("serviceAccountName", "priorityClassName", "volumes"):
        pod.pop(key)
    for container in pod["containers"]:
        for key in ("volumeMounts", "readinessProbe", "livenessProbe", "startupProbe"):
            container.pop(key, None)
    return made


async def wait_running(plane, namespace, number, *, revision="0"):
    """Wait until only pods of a revision run, and return their nodes."""

    async def list_nodes():
        pods = await plane.api.list("Pod", namespace)
        assert len(pods) == number, [(pod["metadata"]["name"], pod["status"].get("conditions")) for pod in pods]
        assert all(pod["status"].get("phase") == "Running" for pod in pods)
        assert {pod["metadata"].get("annotations", {}).get("revision", "0") for pod in pods} == {revision}
        return sorted(pod["spec"]["nodeName"] for pod in pods)

    return await waiting.wait(list_nodes, seconds=60, describe=f"{number} replicas of revision {revision} to run")


async def wait_for_rollout(plane, namespace, revision):
    change = {"spec": {"template": {"metadata": {"annotations": {"revision": revision}}}}}
    await plane.api.patch("Deployment", f"railwright-{NAME}", change, namespace)
    return await wait_running(plane, namespace, 2, revision=revision)


async def test_replicas_spread_over_two_nodes_or_share_one(plane, namespace, nodes):
    refusing = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    await nodes.make("control-plane", rails={}, taints=refusing)
    await nodes.make("one", rails={})
    await plane.api.create(build_deployment(), namespace=namespace)
    assert await wait_running(plane, namespace, 2) == ["one", "one"], "a node that refuses them is no second node"
    assert await wait_for_rollout(plane, namespace, "1") == ["one", "one"], "nor does a rollout wait for one"

    # other preferences speak against it, and outweigh the preference to part
    await nodes.make("two", rails={}, taints=[{"key": "other", "effect": "PreferNoSchedule"}])
    for revision in ("2", "3"):
        assert await wait_for_rollout(plane, namespace, revision) == ["one", "two"]
    await plane.api.patch("Deployment", f"railwright-{NAME}", {"spec": {"replicas": 3}}, namespace)
    assert set(await wait_running(plane, namespace, 3, revision="3")) == {"one", "two"}, "nor do more of them wait"

    await plane.api.create(read_shipped("PodDisruptionBudget"), namespace=namespace)
    await plane.api.patch("Deployment", f"railwright-{NAME}", {"spec": {"replicas": 1}}, namespace)
    (before,) = await wait_running(plane, namespace, 1, revision="3")
    await plane.kubectl("drain", before, "--force", "--timeout=30s")
    (after,) = await wait_running(plane, namespace, 1, revision="3")
    assert {before, after} == {"one", "two"}, "the node of the only replica can be drained"
