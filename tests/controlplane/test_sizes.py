"""How many pods a gang has, read from the real API server by the extender's own service account."""

import pytest
from plane import site as sites
from plane import waiting

LEAF = "fabric.topograph.run/tier-0"
POLICY = f"""
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  ib:
    transport: infiniband
    rails: [{{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}}]
    placement: {{rails: required, domains: [{LEAF}]}}
"""
LEAVES = {"tight": 1, "wide": 4}


def job(name: str, pods: int) -> dict:
    """Return a batch Job that makes no pods yet: what is known of its size, the Job itself says."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "image"}]}}
    spec = {
        "suspend": True,
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def question(namespace: str) -> dict:
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "8", "nvidia.com/mlx5_0": "1"}}}
    labels = {"railwright.io/fabric": "ib", "batch.kubernetes.io/job-name": "train"}
    metadata = {"name": "train-0", "namespace": namespace, "uid": "u", "labels": labels}
    names = [f"{leaf}-{at}" for leaf, size in LEAVES.items() for at in range(size)]
    return {"Pod": {"metadata": metadata, "spec": {"containers": [container]}}, "Nodes": None, "NodeNames": names}


@pytest.fixture
async def extender(nodes, site):
    for leaf, size in LEAVES.items():
        for at in range(size):
            await nodes.make(f"{leaf}-{at}", rails={"nvidia.com/mlx5_0": 1}, labels={LEAF: leaf})
    await nodes.make("unlabelled", rails={"nvidia.com/mlx5_0": 1})
    await site.policy(POLICY)
    return await site.start_extender()


async def test_the_parallelism_of_a_job_is_its_gang_size(plane, namespace, extender):
    async def best() -> set[str]:
        url = f"http://127.0.0.1:{extender.port}/scheduler/prioritize"
        async with plane.session.post(url, json=question(namespace)) as answer:
            rows = await answer.json()
        most = max(row["Score"] for row in rows)
        return {row["Host"].rpartition("-")[0] for row in rows if row["Score"] == most}

    async def prefers(leaf: str) -> None:
        async def is_chosen() -> bool:
            leaves = await best()
            assert leaves == {leaf}
            return True

        await waiting.wait(is_chosen, describe=f"the pod to be wanted on leaf {leaf}")

    await prefers("tight")
    await plane.api.create(job("train", 4), namespace=namespace)
    await prefers("wide")
    await plane.api.delete("batch/v1/Job", "train", namespace)
    await prefers("tight")


async def test_the_extender_is_ready_without_optional_kinds(plane, extender):
    shown = await extender.metrics()
    refused = [line for line in shown.splitlines() if "watch_restarts" in line and not line.startswith("#")]
    assert refused == [], "no watch was refused or failed"
    for kind in ("jobs.batch", "statefulsets.apps", "jobs.batch.volcano.sh", "pytorchjobs.kubeflow.org"):
        assert f'railwright_cache_objects{{kind="{kind}"}}' in shown
    await sites.wait_metric(extender, "railwright_nodes_without_domain", 1.0, domain=LEAF)
