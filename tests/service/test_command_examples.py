"""The examples in the help of each command run, on files and an API server; in a shell if they need one."""

import asyncio
import re
import shlex
import shutil
import signal
import sys

import api_stub
import objects_stub
import pages
import pytest
import varied_clusters
import yaml
from aiohttp import web

from railwright.cli import __main__ as command_line
from railwright.cli import dispatch

LEAVES = [leaf for leaf in dispatch.build_parser().get_leaves() if leaf.command.examples]
ELSEWHERE = {  # run by test_demo.py and test_dashboard.py
    "railwright demo --serve",
    "railwright dashboard --snapshot snapshot.yaml --policy policy.yaml",
}
EXAMPLES = [(leaf, line) for leaf in LEAVES for line in leaf.command.examples if line not in ELSEWHERE]
DEMO = pages.ROOT / "railwright" / "cli" / "demo"
SECONDS = 120.0
SHELL = frozenset("|<>;$&*")  # what only a shell understands
VISTA = varied_clusters.Vista(1, 2, 3, gangs=0, waiting=0)
VISTA.add_gang(4, name="llama", namespace="prod", placed=4)
VISTA.add_gang(2, name="llm", namespace="prod", placed=2)
RANK = {**VISTA.pods[-1], "metadata": {**VISTA.pods[-1]["metadata"], "name": "llm"}}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NETWORKS = [  # a rail each, so that `policy init` finds a fabric
    {
        "metadata": {
            "name": f"rail{rail}",
            "namespace": "prod",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": f"rdma/mlx5_{rail}"},
        },
        "spec": {"config": '{"cniVersion": "0.3.1", "type": "macvlan"}'},
    }
    for rail in range(8)
]
LISTS = {
    "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions": NETWORKS,
    f"{ADMISSION}/mutatingwebhookconfigurations": [{"metadata": {"name": "railwright"}, "webhooks": []}],
    f"{ADMISSION}/validatingadmissionpolicybindings": [],
    "/api/v1/namespaces": [],
    "/api/v1/namespaces/prod/pods": [pod for pod in VISTA.pods if pod["metadata"]["namespace"] == "prod"],
    **VISTA.get_lists(),
}
LOG = yaml.safe_load((pages.ROOT / "tests" / "data" / "nccl-logs.yaml").read_text())["mixed-one-pod-tcp"]["log"]
GANG = {
    "key": "prod/llama",
    "name": "llama",
    "namespace": "prod",
    "fabric": "roce",
    "colour": 0,
    "size": 1,
    "placed": 1,
}
RECORD = {"railwright.io/injection": '{"fabric": "roce", "role": "worker"}'}
INJECTED = {"metadata": {"name": "llama-0", "namespace": "prod", "annotations": RECORD}, "spec": {}}
EXPLANATION = {"pod": "prod/llama-0", "gang": {**GANG, "state": "placed"}, "fabric": "roce", "scheduler": "volcano"}


class Objects(objects_stub.Objects):
    """An API server that stores the objects it receives, and answers reviews and other requests."""

    def __init__(self):
        super().__init__(is_strict=True)
        self.lists |= LISTS
        self.keep(varied_clusters.CONFIGMAP_PATH, varied_clusters.CONFIGMAP)
        self.keep("/api/v1/namespaces/prod/pods/llm", RANK)
        self.keep("/api/v1/namespaces/prod/pods/llama-0", INJECTED)
        service = {"metadata": {"name": "railwright-extender"}, "spec": {"clusterIP": "10.0.0.9"}}
        self.keep("/api/v1/namespaces/railwright-system/services/railwright-extender", service)

    async def answer(self, request):
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.35.0"})
        if "/proxy/explain/" in request.path:
            return web.json_response(EXPLANATION)
        if request.path.endswith("/log"):
            return web.Response(text=LOG)
        if request.path.endswith("/selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}})
        return await super().answer(request)


@pytest.fixture
async def place(tmp_path):
    """Yield a folder with the files of the examples, and an environment with an API server, railwright and kubectl."""
    folder, programs_ = tmp_path / "work", tmp_path / "bin"
    (folder / "manifests" / "deep").mkdir(parents=True)
    programs_.mkdir()
    VISTA.write(folder)
    shutil.copy(folder / "snapshot.json", folder / "snapshot.yaml")
    shutil.copy(DEMO / "job.yaml", folder / "job.yaml")
    shutil.copy(DEMO / "job.yaml", folder / "manifests" / "deep" / "job.yaml")
    shutil.copy(DEMO / "policy.yaml", folder / "policy.yaml")
    (folder / "nccl.log").write_text(LOG)
    write(programs_ / "railwright", f'PYTHONPATH="{pages.ROOT}" exec "{sys.executable}" -m railwright.cli "$@"')
    write(programs_ / "kubectl", f'if [ "$1" = logs ]; then cat "{folder}/nccl.log"; else cat; fi')
    async with objects_stub.serving(Objects()) as objects:
        environment = {
            "HOME": str(tmp_path),
            "PATH": f"{programs_}:/usr/bin:/bin",
            "KUBECONFIG": api_stub.kubeconfig(tmp_path, objects.port),
        }
        yield folder, environment


def write(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("leaf", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
async def test_an_example_in_the_help_of_a_command_runs_without_an_error(place, leaf, line, monkeypatch, capsys):
    folder, environment = place
    if leaf.prog == "railwright dashboard":
        (folder / "policy.yaml").write_text(varied_clusters.POLICY)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    is_served = line.startswith("railwright dashboard")
    alone = re.sub(r" (> \S+|\| kubectl .*)$", "", line)  # what becomes of the output is no matter of ours
    if is_served or line.startswith("railwright demo") or SHELL.intersection(alone):
        code, out, err = await run(folder, environment, line, until=b"http://" if is_served else b"")
    else:  # in this process, which has imported everything
        code = await asyncio.to_thread(command_line.main, shlex.split(alone)[1:])
        out, err = capsys.readouterr()
    assert "usage:" not in err
    assert "Traceback" not in err
    allowed = {code for code, _ in leaf.command.list_exit_codes() if code != 2} | ({130} if is_served else set())
    assert code in allowed, out + err
    assert out or line.startswith("source")


async def run(folder, environment, line, until=b""):
    """Return (exit code, stdout, stderr) of a line of bash. With `until`, interrupt it once stdout has these bytes."""
    command = ["bash", "-o", "pipefail", "-c", f"exec {line}" if until else line]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    shown = b""
    async with asyncio.timeout(SECONDS):
        if until:
            while until not in shown and (part := await process.stdout.readline()):
                shown += part
            process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    return process.returncode, (shown + out).decode(), err.decode()
