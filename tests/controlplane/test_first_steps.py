"""docs/first-steps.md, command by command, under an account with `edit` in one namespace and nothing else.

A line of three dots in an expected output stands for any lines, three dots at the end of a line for its rest.
"""

import asyncio
import os
import pathlib
import re
import sys
import uuid

import pages
import pytest_asyncio
from plane import kube, waiting

ROOT = pathlib.Path(__file__).parents[2]
PAGE = pages.DOCS / "first-steps.md"
NAMESPACE = "prod"  # of the page; the test has a namespace of its own
SUFFIX = re.compile(r"\bllm-(\d)-[a-z0-9]{5}\b")
LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
defaultFabric: roce
fabrics:
  roce:
    transport: roce
    gpusPerNode: 8
    rails:
    - {name: rail0, network: prod/lan0, resource: nvidia.com/mlx5_0, device: mlx5_0}
    - {name: rail1, network: prod/lan1, resource: nvidia.com/mlx5_1, device: mlx5_1}
    mounts: {sharedMemory: 16Gi}
    security: {capabilities: [IPC_LOCK]}
    placement: {domains: [fabric.topograph.run/tier-0, fabric.topograph.run/tier-1]}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(plane, namespace, nodes, site):
    """Return a namespace, two nodes and the webhook, as the page's reader finds them."""
    rails = {"nvidia.com/mlx5_0": 1, "nvidia.com/mlx5_1": 1}
    for name in ("gpu-0", "gpu-1"):
        await nodes.make(name, rails=rails, labels={LEAF: "leaf-0", SPINE: "spine-0"})
    for name in ("lan0", "lan1"):
        network = {
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name}, "spec": {"config": "{}"},
        }  # fmt: skip
        await plane.api.create(network, namespace=namespace)
    await site.policy(POLICY.replace(f"{NAMESPACE}/", f"{namespace}/"))
    await site.start_webhook()
    await site.register(namespace)
    return namespace


@pytest_asyncio.fixture(loop_scope="session")
async def shell(plane, cluster, tmp_path):
    """`await shell(command)`: what a shell prints for a command of the page, with the role `edit` only."""
    user = f"tenant-{uuid.uuid4().hex[:8]}"
    binding = ("create", "rolebinding", "edit", "--clusterrole=edit", f"--user={user}", "-n", cluster)
    await plane.kubectl(*binding)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "railwright").write_text(f'#!/bin/sh\nexec {sys.executable} -m railwright.cli "$@"\n')
    (programs / "kubectl").write_text(f'#!/bin/sh\nexec {plane._kubectl} "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.certificates.kubeconfig(user, plane.parts.server, user)),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }
    folder = tmp_path / "home"
    folder.mkdir()

    async def run(command: str) -> str:
        process = await asyncio.create_subprocess_shell(
            command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        return out.decode()

    async def is_permitted():
        return (await run(f"kubectl auth can-i create pods -n {cluster}")).strip() == "yes"

    await waiting.wait(is_permitted, describe=f"the rights of {user}")
    run.folder = folder
    return run


def read_steps() -> list[tuple[str, list[str]]]:
    """Return the commands of the page in their order, each with its expected lines."""
    steps: list[tuple[str, list[str]]] = []
    for block in pages.blocks(PAGE):
        for line in block.text.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                steps.append((line.removeprefix("$ "), []))
            else:
                steps[-1][1].append(line)
    return steps


def describe_difference(expected: list[str], printed: list[str]) -> str:
    """Return what differs, "" if the output is the expected one."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else f"{re.escape(line.rstrip()).replace(re.escape('...'), '.*')} *\n"
        for line in expected
    )
    text = "".join(f"{line}\n" for line in printed)
    return "" if re.fullmatch(pattern, text) else f"expected:\n{chr(10).join(expected)}\nprinted:\n{text}"


async def test_every_command_prints_what_the_page_says(plane, cluster, shell):
    (job,) = [block.text for block in pages.blocks(PAGE) if block.language == "yaml"]
    (shell.folder / "job.yaml").write_text(job.replace(f"namespace: {NAMESPACE}", f"namespace: {cluster}"))
    names: dict[str, str] = {}  # of pods on the page and in the cluster
    differences = []
    steps = read_steps()
    assert {command.split()[0] for command, _ in steps} == {"railwright", "kubectl", "sed"}
    for command, expected in steps:
        real = re.sub(rf"-n {NAMESPACE}\b", f"-n {cluster}", command)
        for page_name, name in names.items():
            real = real.replace(page_name, name)
        printed = (await shell(real)).replace(cluster, NAMESPACE).splitlines()
        if command.startswith("kubectl apply"):
            await kube.bound(plane.api, cluster, 2, "job-name=llm")
        if command.endswith("-o name"):
            ordered = sorted(name.removeprefix("pod/") for name in printed)
            names = dict(zip(sorted(line.removeprefix("pod/") for line in expected), ordered, strict=True))
            printed.sort()
        printed = [SUFFIX.sub(lambda match: f"llm-{match[1]}-", line) for line in printed]
        shown = [SUFFIX.sub(lambda match: f"llm-{match[1]}-", line) for line in expected]
        if difference := describe_difference(shown, printed):
            differences.append(f"$ {command}\n{difference}")
    assert not differences, "\n".join(differences)
