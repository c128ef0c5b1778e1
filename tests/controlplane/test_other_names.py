"""An installation under another name and in another namespace: its servers work, and the check finds it."""

import asyncio
import contextlib
import json
import os
import pathlib
import sys

import pytest
from plane import nodes as fleet
from plane import releases, stand_ins

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE, NAME = "fabrics", "net"
# No scheduler is configured for it, nodes have no labels of leaves, and each server has one replica on the plane.
UNRELATED = {
    "volcano-configuration",
    "webhook-availability",
    "topology-labels",
    "timeouts",  # of all webhooks on a pod: Volcano's, and those that another test has registered
}
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
defaultFabric: ib
fabrics:
  ib:
    transport: infiniband
    rails: [{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]
"""


async def check(plane, *options, **environment):
    """Return the exit code and the rows of `railwright check`."""
    command = [sys.executable, "-m", "railwright.cli", "check", f"--kubeconfig={plane.kubeconfig}", "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        *command, *options, env={**os.environ, **environment}, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode, {row["check"]: row for row in json.loads(out)["checks"]}


async def test_an_installation_under_another_name_and_in_another_namespace_is_found_and_works(plane, tmp_path):
    helm = releases.Helm(tmp_path, plane.kubeconfig, namespace=NAMESPACE)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    await releases.clear(plane.api)
    machines = fleet.Nodes(plane.api)
    running = stand_ins.StandIns(plane, tmp_path, namespace=NAMESPACE, name=NAME)
    try:
        await asyncio.gather(*(machines.make(f"named-{number}") for number in range(2)))
        options = (f"--set=fullnameOverride={NAME}", f"--set-file=policy.document={policy}")
        notes = await helm("install", "any", str(releases.CHART), "--create-namespace", *options)
        assert f"export RAILWRIGHT_NAMESPACE={NAMESPACE} RAILWRIGHT_INSTALLATION={NAME} " in notes
        await running.start()
        code, rows = await check(plane, "--wait=60", **running.environment)
        unexpected = {name: row for name, row in rows.items() if row["state"] in ("warn", "fail")}
        assert not unexpected.keys() - UNRELATED, unexpected
        assert code == 0
        for name in ("webhook-deployment", "ca-bundle", "certs-rotation", "extender-lease", "policy-in-force"):
            assert rows[name]["state"] == "ok", rows[name]
        assert rows["dry-run"]["state"] in ("ok", "skip"), rows["dry-run"]
        code, rows = await check(plane)
        assert code == 1
        hints = [row["hint"] for row in rows.values() if row["state"] == "fail"]
        assert any("export RAILWRIGHT_NAMESPACE=" in hint for hint in hints), hints
        with pytest.raises(releases.FailedError, match=f"MutatingWebhookConfiguration {NAME} belongs to another"):
            await releases.Helm(tmp_path, plane.kubeconfig).install("--create-namespace")
    finally:
        await running.stop()
        with contextlib.suppress(releases.FailedError):
            await helm("uninstall", "any")
        await plane.remove_namespace(NAMESPACE)
        await machines.remove()
