"""torch.distributed with gloo in 360 Smart Cloud's job on real nodes: its bytes go over the interfaces of the rails.

gloo uses the interfaces that GLOO_SOCKET_IFNAME names: the user's own value is kept.
"""

import pathlib
import re

import pytest
import pytest_asyncio
from plane import conditions, manifests, waiting
from realnode import layout, network, rails, ranks, torch_image

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "data" / "e2e-allreduce.py"
MASTER = "torch-master-0"
MEGABYTE = 1 << 20
pytestmark = pytest.mark.timeout(600)  # the image has 700 MB
INTERFACES = ",".join(f"net{rail + 1}" for rail in range(layout.RAILS))


def describe_job() -> dict:
    """Return the example's job with a rank on each node; each runs the script."""
    job = rails.describe_job("torch")
    for task in job["spec"]["tasks"]:
        command = ["sh", "-c", "python3 /script/allreduce.py && sleep 100000"]
        ranks.simplify(task["template"], torch_image.NAME, command)
        (container,) = task["template"]["spec"]["containers"]
        container.setdefault("env", []).append({"name": "GLOO_SOCKET_IFNAME", "value": INTERFACES})
        container.setdefault("volumeMounts", []).append({"name": "script", "mountPath": "/script"})
        task["template"]["spec"].setdefault("volumes", []).append({"name": "script", "configMap": {"name": "script"}})
    return job


@pytest_asyncio.fixture(loop_scope="session")
async def image(installed, real_site, load_image):
    """Load an image with torch and the script on all nodes, and yield it."""
    await load_image(torch_image.build)
    files = manifests.build("ConfigMap", "script", data={"allreduce.py": SCRIPT.read_text()})
    await real_site.plane.api.create(files, namespace=rails.NAMESPACE)
    yield
    await real_site.plane.remove_pods(rails.NAMESPACE)
    await real_site.plane.api.delete("ConfigMap", "script", rails.NAMESPACE)


async def test_sums_go_over_all_rails_and_no_pod_network(installed, real_site, image):
    plane = real_site.plane
    await plane.call_extender()
    before = network.count_bytes(real_site.network)
    await plane.api.create(describe_job())
    await conditions.wait_running(plane.api, rails.NAMESPACE, "volcano.sh/job-name=torch", 2, seconds=150)

    async def find_size() -> int:
        log = await plane.kubectl("logs", f"--namespace={rails.NAMESPACE}", MASTER)
        match = re.search(r"^BYTES (\d+)$", log, re.MULTILINE)
        return int(match[1]) if match else 0

    size = await waiting.wait(find_size, seconds=100, describe=f"the sums of {MASTER}")
    sent = {name: count - before[name] for name, count in network.count_bytes(real_site.network).items()}
    for rail in range(layout.RAILS):
        assert sent[network.name_bridge(rail)] > size / 8, "a fair part of what each rank sends"
    assert sum(sent[network.name_bridge(rail)] for rail in range(layout.RAILS)) > 1.5 * size
    assert sent[layout.BRIDGE] < 16 * MEGABYTE, "the ranks' first contact, and the cluster's own traffic"
