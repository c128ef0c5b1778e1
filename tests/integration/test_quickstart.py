"""hack/quickstart/quickstart.sh against the real API server and scheduler, with simulated nodes."""

import asyncio
import json
import sys

from plane import conditions, quickstart, releases, site, stand_ins

from railwright.fabric import names

NAMESPACE = quickstart.NAMESPACE
WEBHOOKS, WEBHOOK = "MutatingWebhookConfiguration", "railwright-webhook"


async def test_the_quickstart_script_installs_checks_and_removes_railwright(plane, nodes, tmp_path):
    await releases.clear(plane.api)
    running = stand_ins.StandIns(plane, tmp_path, has_extender=False)
    check = f"{sys.executable} -m railwright.cli check --wait=60 --verbose"
    options = ("--skip-image", "--nodes", "quick-0,quick-1", "--check", check)
    try:
        await asyncio.gather(*(nodes.make(f"quick-{number}") for number in range(2)))
        started = asyncio.create_task(running.start())
        code, output = await quickstart.run(plane, tmp_path, *options)
        assert code == 0, output
        await started
        assert "\n√ A dry-run pod gets its network" in output, output
        assert "NCCL_IB_HCA=" in output
        assert '"quickstart.railwright.io/rail1":"1"' in output
        pods = await plane.api.list("Pod", NAMESPACE)
        assert pods
        for pod in pods:
            assert json.loads(pod["metadata"]["annotations"][names.INJECTION])
            assert pod["spec"]["containers"][0]["image"] == "railwright:quickstart"
        node = (await plane.api.get("Node", "quick-0"))["status"]
        assert node["allocatable"]["quickstart.railwright.io/gpu"] == "8"
    finally:
        await running.stop()  # a server that loses its roles asks for what it may no longer do
        code, output = await quickstart.run(plane, tmp_path, "--nodes", "quick-0,quick-1", "--delete")
        await plane.remove_namespace(NAMESPACE)
        for namespace in (NAMESPACE, names.NAMESPACE):  # the next test creates it again
            await conditions.wait_gone(plane.api, "Namespace", namespace)
        node = (await plane.api.get("Node", "quick-0"))["status"]
    assert code == 0, output
    assert not [name for name in node["capacity"] if name.startswith("quickstart.")]
    assert await plane.api.get_or_none(WEBHOOKS, "railwright") is None


async def test_the_quickstart_script_does_not_change_other_installations(plane, tmp_path):
    await site.Site(plane).prepare()  # the namespace
    await releases.clear(plane.api)
    own = releases.Helm(tmp_path / "own", plane.kubeconfig)
    await own.install("--set=webhook.replicas=3")
    try:
        for option in ("--skip-image", "--delete"):
            code, output = await quickstart.run(plane, tmp_path, "--nodes", "none", option)
            assert code == 2, output
            assert "railwright is installed in this cluster, and not by this script" in output
        assert (await plane.api.get("Deployment", WEBHOOK, names.NAMESPACE))["spec"]["replicas"] == 3
        await own("uninstall", releases.RELEASE)
        await plane.kubectl("-n", names.NAMESPACE, "create", "deployment", WEBHOOK, "--image=x", "--replicas=0")
        code, output = await quickstart.run(plane, tmp_path, "--nodes", "none", "--delete")
        assert code == 2, output
        assert "railwright is installed in this cluster without Helm" in output
    finally:
        await plane.api.delete("Deployment", WEBHOOK, names.NAMESPACE)
        await releases.clear(plane.api)
