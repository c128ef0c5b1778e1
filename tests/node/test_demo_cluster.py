"""`make demo-cluster DEMO_ARGS=--keep` as a user runs it: the job, the printed shell, and the end by Ctrl-C."""

import asyncio
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import pytest
import pytest_asyncio
from plane import processes, waiting
from realnode import layout, project_image, rails, remains

SCRIPT = pathlib.Path(__file__).with_name("demo.py")
RANKS = ("rdma-test-master-0", "rdma-test-worker-0")
# the environment of the printed shell, and the command that starts it in the network namespace of the cluster
SHELL = r"^  (export KUBECONFIG=\S+ PATH=\S+)\n  (nsenter --net=(\S+)) bash\n"
START_SECONDS = 400  # a control plane, two nodes, the chart and a job on a busy machine
pytestmark = pytest.mark.timeout(START_SECONDS + 200)


@dataclasses.dataclass(frozen=True)
class Demo:
    """A demo that waits for Ctrl-C: its output, and the shell that it has printed."""

    output: str
    environment: str
    enter: str

    async def run(self, command: str) -> str:
        """Return the output of a command in the printed shell."""
        text = f"{self.environment}\n{self.enter} bash -c '{command}'"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = await asyncio.create_subprocess_exec("bash", "-ec", text, **pipes)
        output, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()
        return output.decode()


def find_remains(folder: str, nodes: str, network: str) -> dict[str, list[str]]:
    """Return what the machine has of a demo: `folder` is its temporary one, its nodes' cgroups begin with `nodes`."""
    return {
        "processes of the control plane": remains.list_processes(folder),
        "processes of the nodes": remains.list_processes(nodes),
        "cgroups": remains.list_cgroups(nodes),
        "mounts": remains.list_mounts(folder),
        "network namespaces": [name for name in remains.list_network_namespaces() if name == network],
        "files": [str(path) for path in pathlib.Path(folder).iterdir()],
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demo(capable_machine, tmp_path_factory):
    """The demo, kept. Afterwards Ctrl-C ends it, and nothing of it is left."""
    if reason := project_image.find_obstacle():
        pytest.skip(reason)
    logs = tmp_path_factory.mktemp("logs")
    with tempfile.TemporaryDirectory(prefix="railwright-site-", ignore_cleanup_errors=True) as folder:
        process = processes.Process("demo", [sys.executable, str(SCRIPT), "--keep"], logs=logs)
        process.start({"TMPDIR": folder, "PYTHONUNBUFFERED": "1"})
        try:
            environment, enter, namespace = (await process.line(SHELL, seconds=START_SECONDS)).groups()
            search = (folder, f"railwright-{process.pid}-", remains.read_namespace(namespace))
            assert all(find_remains(*search).values()), "everything is found while the demo runs"
            yield Demo(process.output(), environment, enter)
            os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches the whole process group of a terminal
            await waiting.wait(lambda: not process.running, seconds=120, describe="the demo to end")
        finally:
            code = await process.kill()

        def is_gone() -> bool:
            left = {kind: names for kind, names in find_remains(*search).items() if names}
            assert not left, left
            return True

        await waiting.wait(is_gone, describe="everything of the demo to be gone")
        assert code == 0, process.output()


async def test_output_shows_the_node_of_each_rank_the_gang_and_the_interfaces_of_a_rank(demo):
    nodes = [node for rank in RANKS for node in re.findall(rf" {rank} +1/1 +Running .* (node-\w) ", demo.output)]
    assert sorted(nodes) == list(layout.NODES), demo.output
    assert re.search(rf"^{rails.NAMESPACE} +rdma-test-\S+ +placed +2/2 ", demo.output, re.MULTILINE), demo.output
    interfaces = re.findall(r"^\d+: (net\d) +inet (\d+\.\d+\.\d+)\.", demo.output, re.MULTILINE)
    assert interfaces == [(f"net{rail + 1}", f"192.168.{rail + 2}") for rail in range(layout.RAILS)]


async def test_printed_shell_has_kubectl_helm_and_railwright_for_the_cluster(demo):
    pods = json.loads(await demo.run(f"kubectl get pods --namespace={rails.NAMESPACE} --output=json"))["items"]
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    assert set(nodes) == set(RANKS)
    (gang,) = json.loads(await demo.run("kubectl railwright gangs --output=json"))
    assert {rank["pod"]: rank["node"] for rank in gang["ranks"]} == nodes
    (release,) = json.loads(await demo.run("helm list --all-namespaces --output=json"))
    assert (release["name"], release["status"]) == ("railwright", "deployed")
