"""hack/quickstart/quickstart.sh on real nodes: its job's pods start, with the log that the page shows."""

import asyncio

import pytest
import pytest_asyncio
from plane import conditions, quickstart, waiting
from realnode import layout, project_image

from railwright.fabric import names

NAMESPACE = quickstart.NAMESPACE
DEVICES = [f"quickstart.railwright.io/{name}" for name in ("gpu", "rail0", "rail1")]
CHECK = "railwright check --wait=120 --verbose"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def output(real_site, tmp_path_factory):
    """Yield the output of the script, and remove its installation by its own option."""
    if reason := project_image.find_obstacle():
        pytest.skip(reason)
    image = await asyncio.to_thread(project_image.build)
    await real_site.load(image)
    folder = tmp_path_factory.mktemp("helm")
    try:
        code, text = await quickstart.run(real_site.plane, folder, "--image", image.name, "--check", CHECK)
        assert code == 0, text
        yield text
    finally:
        code, text = await quickstart.run(real_site.plane, folder, "--delete")
        for namespace in (NAMESPACE, names.NAMESPACE):
            await conditions.wait_gone(real_site.plane.api, "Namespace", namespace)
    assert code == 0, text
    for node in await real_site.plane.api.list("Node"):
        assert not [device for device in DEVICES if device in node["status"]["capacity"]]
    assert await real_site.plane.api.get_or_none("MutatingWebhookConfiguration", "railwright") is None


async def test_both_pods_of_the_quickstart_log_the_injected_nccl_variables(real_site, output):
    async def is_complete() -> bool:
        job = await real_site.plane.api.get("batch/v1/Job", "train", NAMESPACE)
        return job["status"].get("succeeded") == 2

    await waiting.wait(is_complete, seconds=60, describe="both pods of the job to succeed")
    pods = await real_site.plane.api.list("Pod", NAMESPACE, labels="job-name=train")
    assert len(pods) == 2
    for pod in pods:
        assert pod["spec"]["nodeName"] in layout.NODES
        log = await real_site.plane.kubectl("logs", f"--namespace={NAMESPACE}", pod["metadata"]["name"])
        assert "NCCL_IB_HCA==mlx5_0,mlx5_1" in log.splitlines()
        (container,) = pod["spec"]["containers"]
        injected = {entry["name"]: entry["value"] for entry in container["env"] if "NCCL" in entry["name"]}
        assert set(log.splitlines()) == {f"{name}={value}" for name, value in injected.items()}


async def test_kubelet_keeps_the_fake_devices_of_the_quickstart_in_the_status_of_a_node(real_site, output):
    for node in await real_site.plane.api.list("Node"):
        allocatable = node["status"]["allocatable"]
        assert {allocatable[device] for device in [*DEVICES, "nvidia.com/gpu"]} == {"8"}
