"""`railwright explain` and a running webhook give the same answer, byte by byte, for every shipped manifest."""

import asyncio
import base64
import json

import admitting
import aiohttp
import msgspec
import processes

from railwright.cli import __main__ as command_line
from railwright.cli import object_files
from railwright.cli.demo import scenario
from railwright.cli.explanation import previews, templates

POLICY = admitting.EXAMPLES / "360-roce" / "policy.yaml"
MANIFESTS = [
    *(path for policy in admitting.EXAMPLES.glob("*/policy.yaml") for path in sorted(policy.parent.glob("*.yaml"))),
    admitting.ROOT / "tests" / "data" / "manifests" / "workloads.yaml",
]


async def test_explain_shows_the_running_servers_patch_for_every_manifest(tmp_path, capsys):
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps({"kind": "List", "items": scenario.build_cluster().objects}))
    sources = (f"--policy={POLICY}", f"--snapshot={snapshot}")
    server = await processes.begin("webhook", "--plain-http", *sources)
    await server.ready()
    patched = 0
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        for path in MANIFESTS:
            trees = object_files.read_manifest(path.read_text(), str(path))
            made = [template for tree in trees for template in templates.list_templates(tree, "default")]
            if not made:
                continue  # a policy, or what a cluster needs beside the job
            await asyncio.to_thread(command_line.main, ["explain", str(path), *sources, "-o", "json"])
            for given, template in zip(json.loads(capsys.readouterr().out), made, strict=True):
                body = previews.build_review(template.pod, previews.POD, template.namespace)
                async with session.post(f"http://127.0.0.1:{server.port}/mutate/pods", data=body) as answer:
                    assert_same(given, (await answer.json())["response"], len(template.warnings))
                patched += bool(given["operations"])
    await server.end()
    assert patched > 20, "most of them opt in"


def assert_same(given: dict, response: dict, about_object: int) -> None:
    """Assert that the explanation has the server's answer, with an equal patch.

    The first `about_object` warnings are about the object, which the review of its pod does not have.
    """
    patch = base64.b64decode(response.get("patch", "")) or b"[]"
    assert msgspec.json.encode(given["operations"]) == patch
    assert (given["outcome"] == "refused") == (not response["allowed"])
    assert given["message"] == response.get("status", {}).get("message", "")
    warnings = [
        f"{warning['code']}: {'; '.join(filter(None, [warning['message'], warning.get('fix')]))}"
        for warning in given["warnings"][about_object:]
    ]
    assert warnings[:7] == response.get("warnings", [])[:7]
