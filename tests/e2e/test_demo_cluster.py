"""`make demo-cluster DEMO_ARGS=--keep` as a user runs it: both jobs, each printed command, and the end by Ctrl-C."""

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
import urllib.request
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest
import pytest_asyncio
from plane import processes, waiting
from realnode import layout, project_image, rails, remains

SCRIPT = pathlib.Path(__file__).with_name("demo.py")
# the environment for another terminal, and the commands that the demo suggests
USE = r"^  (export KUBECONFIG=\S+ PATH=\S+)\n\nFor example:\n\n((?:  .+\n)+)\nWhen "
JOB_SET, VOLCANO_JOB = "jobset.sigs.k8s.io/jobset-name=llm", "volcano.sh/job-name=next"
START_SECONDS = 400  # a control plane, two nodes, the chart and a job on a busy machine
pytestmark = pytest.mark.timeout(START_SECONDS + 200)


@dataclasses.dataclass(frozen=True)
class Demo:
    """A demo that waits for Ctrl-C: its output, and the commands that it suggests for another terminal."""

    output: str
    environment: str
    commands: list[str]

    async def run(self, command: str, *, code: int = 0) -> str:
        """Run a command in another terminal, which ends with this exit code; return its output."""
        process = await self.start(command)
        output, errors = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode == code, f"{command}: exit {process.returncode}\n{output.decode()}{errors.decode()}"
        return output.decode()

    async def start(self, command: str) -> asyncio.subprocess.Process:
        """Start a command in another terminal."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return await asyncio.create_subprocess_exec("bash", "-ec", f"{self.environment}\nexec {command}", **pipes)

    async def find_nodes(self, labels: str) -> Mapping[str, str]:
        """Return the node of each running pod."""
        pods = json.loads(await self.run(f"kubectl get pods --selector={labels} --output=json"))["items"]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"}


def find_remains(folder: str, nodes: str, networks: AbstractSet[str]) -> dict[str, list[str]]:
    """Return the remains of a demo: `folder` is its temporary one, its nodes' cgroups begin with `nodes`."""
    return {
        "processes of the control plane": remains.list_processes(folder),
        "processes of the nodes": remains.list_processes(nodes),
        "cgroups": remains.list_cgroups(nodes),
        "mounts": remains.list_mounts(folder),
        "network namespaces": [name for name in remains.list_network_namespaces() if name in networks],
        "files": [str(path) for path in pathlib.Path(folder).iterdir()],
    }


def find_networks(pid: int) -> AbstractSet[str]:
    """Return the network namespaces of a demo's control plane and nodes, its child processes."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    namespaces = {remains.read_namespace(f"/proc/{child}/ns/net") for child in children}
    return namespaces - {remains.read_namespace("/proc/self/ns/net")}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demo(capable_machine, tmp_path_factory):
    """Yield a running demo. Then end it by Ctrl-C, and check that nothing of it is left."""
    if reason := project_image.find_obstacle():
        pytest.skip(reason)
    logs = tmp_path_factory.mktemp("logs")
    with tempfile.TemporaryDirectory(prefix="railwright-site-", ignore_cleanup_errors=True) as folder:
        process = processes.Process("demo", [sys.executable, str(SCRIPT), "--keep"], logs=logs)
        process.start({"TMPDIR": folder, "PYTHONUNBUFFERED": "1"})
        try:
            environment, lines = (await process.wait_line(USE, seconds=START_SECONDS)).groups()
            search = (folder, f"railwright-{process.pid}-", find_networks(process.pid))
            assert all(find_remains(*search).values()), "everything is found while the demo runs"
            yield Demo(process.output(), environment, [line.strip() for line in lines.splitlines()])
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


async def test_the_demo_prints_gangs_ranks_and_interfaces(demo):
    nodes = re.findall(r" llm-workers-0-\d-\w+ +1/1 +Running .* (node-\w) ", demo.output)
    assert sorted(nodes) == list(layout.NODES), demo.output
    gangs = re.findall(rf"^{rails.NAMESPACE} +(\S+) +(\S+) +(\d/\d) ", demo.output, re.MULTILINE)
    assert [(state, placed) for _, state, placed in gangs] == [("placed", "2/2"), ("waiting", "0/2")], demo.output
    assert "\\" not in demo.output
    interfaces = re.findall(r"^\d+: (net\d) +inet (\d+\.\d+\.\d+)\.", demo.output, re.MULTILINE)
    assert interfaces == [(f"net{rail + 1}", f"192.168.{rail + 2}") for rail in range(layout.RAILS)]


async def test_kubectl_railwright_and_helm_run_with_the_printed_environment(demo):
    nodes = await demo.find_nodes(JOB_SET)
    assert sorted(nodes.values()) == list(layout.NODES)
    gangs = json.loads(await demo.run("kubectl railwright gangs --output=json"))
    assert {rank["pod"]: rank["node"] for rank in gangs[0]["ranks"]} == nodes
    (release,) = json.loads(await demo.run("helm list --all-namespaces --output=json"))
    assert (release["name"], release["status"]) == ("railwright", "deployed")


async def test_every_command_that_the_demo_suggests_succeeds(demo):
    for command in demo.commands:
        if command == "railwright dashboard":
            await check_dashboard(demo, command)
            continue
        output = await demo.run(command)
        assert "token" not in output, f"{command} has all rights and a token:\n{output}"

    async def has_started() -> bool:
        nodes = await demo.find_nodes(VOLCANO_JOB)
        assert sorted(nodes.values()) == list(layout.NODES), nodes
        return True

    await waiting.wait(has_started, seconds=120, describe="both pods of the waiting job to run on a node each")


async def check_dashboard(demo: Demo, command: str) -> None:
    process = await demo.start(command)
    try:
        text = ""
        while (match := re.search(r"http://127\.0\.0\.1:\d+\S*", text)) is None:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line, f"{command} ended: {(await process.stderr.read()).decode()}"
            text += line.decode()
        with await asyncio.to_thread(urllib.request.urlopen, match[0], timeout=30) as page:
            assert b"railwright" in page.read()
    finally:
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
