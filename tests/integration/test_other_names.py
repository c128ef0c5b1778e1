"""An installation under another name and in another namespace: its servers work, and `railwright check` finds it."""

import asyncio
import contextlib

import pytest
from plane import commands, manifests, releases, stand_ins

NAMESPACE, NAME = "fabrics", "net"
# No scheduler is configured for it, nodes have no labels of leaves, and each server has one replica on the plane.
UNRELATED = {
    "volcano-configuration",
    "replicas",
}
POLICY = manifests.policy({"ib": manifests.fabric()}, defaultFabric="ib")
LABELS = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/component": "webhook"}


async def assert_one_of_several_is_chosen(plane):
    """Check that with two installations the command asks for a namespace. The second is a Deployment only."""
    pod = manifests.pod(container={"name": "webhook"})
    second = manifests.workload("Deployment", pod, name="other-webhook", replicas=2)
    second["metadata"]["labels"] = LABELS
    await plane.make_namespace("others")
    try:
        await plane.api.create(second, namespace="others")
        message = (
            "railwright: the cluster has 2 installations of railwright: net in namespace fabrics, other in namespace "
            "others; choose one by its namespace: -n fabrics\n"
        )
        assert await commands.railwright("check", kubeconfig=plane.kubeconfig) == (2, "", message)
        code, rows = await commands.check(plane, "-n", "others")
        assert code == 1
        assert rows["installed"]["state"] == "ok"
        assert rows["installed"]["detail"] == "others"
    finally:
        await plane.remove_namespace("others")


async def test_check_passes_for_an_installation_under_another_name_and_namespace(plane, nodes, tmp_path):
    helm = releases.Helm(tmp_path, plane.kubeconfig, namespace=NAMESPACE)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    await releases.clear(plane.api)
    running = stand_ins.StandIns(plane, tmp_path, namespace=NAMESPACE, name=NAME)
    try:
        await asyncio.gather(*(nodes.make(f"named-{number}") for number in range(2)))
        options = (f"--set=fullnameOverride={NAME}", f"--set-file=policy.document={policy}")
        notes = await helm("install", "any", str(releases.CHART), releases.WHOLE, "--create-namespace", *options)
        assert f"export RAILWRIGHT_NAMESPACE={NAMESPACE} RAILWRIGHT_INSTALLATION={NAME} " in notes
        await running.start()
        code, rows = await commands.check(plane, "--wait=60", **running.environment)
        unexpected = {name: row for name, row in rows.items() if row["state"] in ("warn", "fail")}
        assert not unexpected.keys() - UNRELATED, unexpected
        assert code == 0, unexpected
        for name in ("installed", "ca-bundle", "replicas"):
            assert rows[name]["state"] == "ok", rows[name]
        assert rows["dry-run"]["state"] in ("ok", "skip"), rows["dry-run"]
        code, by_labels = await commands.check(plane)
        assert code == 0, by_labels
        assert {name: row["state"] for name, row in by_labels.items()} == {
            name: row["state"] for name, row in rows.items()
        }
        await assert_one_of_several_is_chosen(plane)
        with pytest.raises(releases.FailedError, match=f"MutatingWebhookConfiguration {NAME} belongs to another"):
            await releases.Helm(tmp_path, plane.kubeconfig).install("--create-namespace")
    finally:
        await running.stop()
        with contextlib.suppress(releases.FailedError):
            await helm("uninstall", "any")
        await plane.remove_namespace(NAMESPACE)
