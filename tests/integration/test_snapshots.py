"""docs/interface.md 6.1 on a real cluster: its commands read the files that its kubectl commands write."""

import json

import pages
from plane import commands, gangs
from test_terminal import POLICY, RAIL, pod


async def test_every_command_reads_what_kubectl_writes(plane, namespace, nodes, site, tmp_path):
    await nodes.make("snap-0", rails=RAIL, labels={gangs.LEAF: "leaf-0"})
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
