"""`kubectl railwright` with the real kubectl: it is found as a plugin, and reads a real cluster.

The same commands read what kubectl has written into files.
"""

import asyncio
import json
import os
import re
import sys

import pages
import pytest_asyncio
from plane import commands, manifests, processes
from plane.manifests import LEAF, RAILS

from railwright.fabric import names
from railwright.fabric.workloads import volcano

PLACEMENT = {"domains": [LEAF], "oversubscription": [4]}
POLICY = manifests.policy({"ib": manifests.fabric(placement=PLACEMENT)})
RAIL = {RAILS[0]: 1}


@pytest_asyncio.fixture(loop_scope="session")
async def kubectl(plane, tmp_path):
    """Return `await kubectl("railwright", ...)`: run kubectl, with our program on its PATH, and return its result."""
    program = tmp_path / "kubectl-railwright"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom railwright.cli.__main__ import main\nsys.exit(main())\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    async def run(*arguments: str, stdin: str = "") -> processes.Result:
        return await commands.railwright(
            *arguments, kubeconfig=plane.kubeconfig, stdin=stdin, program=(plane.kubectl_program,), PATH=path
        )

    return run


def pod(namespace: str, gang: str, rank: int, node: str) -> dict:
    annotations = {volcano.GROUP_ANNOTATION: gang, names.INJECTION: '{"fabric":"ib","rails":["rail0"]}'}
    place = {"nodeName": node} if node else {"schedulerName": "nobody"}
    made_pod = manifests.pod(f"{gang}-{rank}", "ib", limits=RAIL, annotations=annotations, **place)
    made_pod["metadata"]["namespace"] = namespace
    return made_pod


async def test_kubectl_runs_the_plugin(plane, namespace, nodes, site, kubectl):
    for at in range(2):
        await nodes.make(f"term-{at}", rails=RAIL, labels={LEAF: f"leaf-{at}"})
    await site.policy(POLICY)
    for gang, rank, node in (("llm", 0, "term-0"), ("train", 0, ""), ("train", 1, "")):
        await plane.api.create(pod(namespace, gang, rank, node))

    wrongly_set = manifests.pod(container={"env": [{"name": "NCCL_IB_TIMEOUT", "value": "99"}]})
    listed, filtered, fabric, linted, wrong = await asyncio.gather(
        kubectl("plugin", "list"),
        kubectl("railwright", "gangs", "-A", "-o", "json"),
        kubectl("railwright", "fabric", "-o", "json"),
        kubectl("railwright", "lint", "-", stdin=json.dumps(wrongly_set)),
        kubectl("railwright", "gangs", "-n", "a", "-A"),
    )
    assert "kubectl-railwright" in listed[1], listed
    gangs = {gang["name"]: gang for gang in json.loads(filtered[1]) if gang["namespace"] == namespace}
    assert (gangs["llm"]["state"], gangs["llm"]["placed"], gangs["llm"]["ranks"][0]["node"]) == ("placed", 1, "term-0")
    assert gangs["train"]["state"] == "waiting", "one rail is free, and it has two pods"
    assert filtered[0] == 0
    (ib,) = json.loads(fabric[1])["fabrics"]
    assert (ib["rails_free"], ib["rails_busy"]) == (1, 1), fabric
    assert (linted[0], "N09" in linted[1]) == (1, True), linted
    assert (wrong[0], "and -A exclude each other" in wrong[2]) == (2, True), wrong


async def test_a_message_about_a_missing_right_names_a_command_that_confirms_it(plane, kubectl):
    code, _, err = await kubectl("railwright", "gangs", "--as", "dev")
    question = re.search(r"\(kubectl (auth can-i [^)]+)\)", err)[1]
    assert code == 2
    answer = await kubectl(*question.split(), "--as", "dev")
    assert (answer[0], answer[1].strip()) == (1, "no"), answer
    assert (await kubectl(*question.split()))[1].strip() == "yes"


async def test_commands_read_the_files_that_kubectl_writes(plane, namespace, nodes, site, tmp_path):
    """The commands of docs/interface.md 6.1 read the files that its kubectl commands write."""
    await nodes.make("snap-0", rails=RAIL, labels={LEAF: "leaf-0"})
    await site.policy(POLICY)
    await plane.api.create(pod(namespace, "llm", 0, "snap-0"))
    shell = commands.Shell(plane, tmp_path, plane.kubeconfig)
    (shell.folder / "job.yaml").write_text(json.dumps(pod(namespace, "asked", 0, "")))
    printed = {}
    for block in pages.blocks(pages.DOCS / "interface.md"):
        for line in block.text.splitlines() if block.language == "console" else ():
            code, out, err = await shell(line.removeprefix("$ "))
            assert code == 0, f"{line}: {err}"
            printed[" ".join(line.split()[1:3])] = out
    assert {"railwright gangs", "railwright fabric", "railwright explain"} <= set(printed)
    assert namespace in printed["railwright gangs"]
    assert "llm" in printed["railwright gangs"]
    assert "leaf-0" in printed["railwright fabric"]
