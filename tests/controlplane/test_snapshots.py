"""docs/reference/snapshots.md on a real cluster: its commands read the files that its kubectl commands write."""

import asyncio
import json
import os
import pathlib
import sys

import pages
from test_terminal import LEAF, POLICY, pod

ROOT = pathlib.Path(__file__).parents[2]


async def test_every_command_reads_what_kubectl_writes(plane, namespace, nodes, site, tmp_path):
    await nodes.make("snap-0", rails={"nvidia.com/mlx5_0": 1}, labels={LEAF: "leaf-0"})
    await site.policy(POLICY)
    await plane.api.create(pod(namespace, "llm", 0, "snap-0"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("railwright", f"{sys.executable} -m railwright.cli"), ("kubectl", plane._kubectl)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "KUBECONFIG": str(plane.kubeconfig),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    (tmp_path / "job.yaml").write_text(json.dumps(pod(namespace, "asked", 0, "")))
    printed = {}
    for block in pages.blocks(pages.DOCS / "reference" / "snapshots.md"):
        for line in block.text.splitlines() if block.language == "console" else ():
            process = await asyncio.create_subprocess_shell(
                line.removeprefix("$ "), cwd=tmp_path, env=environment,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, f"{line}: {err.decode()}"
            printed[" ".join(line.split()[1:3])] = out.decode()
    assert {"railwright gangs", "railwright fabric", "railwright explain"} <= set(printed)
    assert namespace in printed["railwright gangs"]
    assert "llm" in printed["railwright gangs"]
    assert "leaf-0" in printed["railwright fabric"]
