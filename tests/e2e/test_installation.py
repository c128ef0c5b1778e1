"""The image of the Containerfile, installed by the chart with default values, on real nodes."""

import re

import pytest
from plane import load, waiting
from realnode import installation, layout

pytestmark = pytest.mark.main
RESOURCE = "nvidia.com/mlx5_0"


async def test_replicas_of_each_server_run_on_separate_nodes_without_a_restart(installed):
    for component in ("certs", "extender", "webhook"):
        pods = await installed.list_pods(component)
        places = [pod["spec"]["nodeName"] for pod in pods]
        assert (len(places) == 1) if component == "certs" else (sorted(places) == sorted(layout.NODES)), component
        for pod in pods:
            (status,) = pod["status"]["containerStatuses"]
            assert status["restartCount"] == 0, pod["metadata"]["name"]


async def test_containers_run_as_user_65532_on_a_read_only_root(installed):
    code = (
        "import os\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())\n"
        "print(status['Uid'].split(), status['Gid'].split(), status['CapEff'].strip(), status['CapBnd'].strip())\n"
        "print(status['NoNewPrivs'].strip(), status['Seccomp'].strip())\n"
        "for folder in ('/', '/tmp', '/railwright', '/run'):\n"
        "    try: open(folder + '/x', 'w')\n"
        "    except OSError as error: print(folder, error.errno)\n"
    )
    for pod in await installed.list_pods():
        name = pod["metadata"]["name"]
        output = await installed.site.execute(installation.NAMESPACE, name, "python", "-c", code)
        lines = output.splitlines()
        assert lines[0] == f"{['65532'] * 4} {['65532'] * 4} {'0' * 16} {'0' * 16}", name
        assert lines[1] == "1 2", f"{name}: no new privileges, seccomp filter"
        assert lines[2:] == ["/ 30", "/tmp 30", "/railwright 30", "/run 30"], f"{name}: errno 30 is EROFS"


async def test_railwright_check_finds_no_failure(installed):
    report = await installed.check("--wait=30")
    failures = [(check["check"], check["detail"]) for check in report["checks"] if check["state"] == "fail"]
    assert failures == []
    assert sum(check["state"] == "ok" for check in report["checks"]) > 12


async def test_helm_test_passes(installed):
    output = await installed.helm("test", "railwright")
    assert set(re.findall(r"Phase:\s+(\w+)", output)) == {"Succeeded"}, output


async def restart(release):
    deployment = ("deployment/railwright-webhook", f"--namespace={installation.NAMESPACE}")
    await release.plane.kubectl("rollout", "restart", *deployment)


async def upgrade(release):
    await release.helm.upgrade("--set=webhook.extraArgs={--drain-seconds=9}")


async def drain(release):
    await release.plane.kubectl("drain", layout.NODES[1], "--delete-emptydir-data", seconds=150)


@pytest.mark.parametrize("replace", [upgrade, drain])
async def test_every_pod_is_injected_while_webhooks_are_replaced(installed, pod_namespace, replace):
    before = {pod["metadata"]["uid"] for pod in await installed.list_pods("webhook")}
    async with load.Load(installed.plane.api, pod_namespace, per_second=20, fabric="roce", resource=RESOURCE) as stream:
        await waiting.wait(lambda: stream.created > 20, describe="the first pods")
        await replace(installed)
        await installed.wait_available()
        created = stream.created
        await waiting.wait(lambda: stream.created > created + 20, describe="pods afterwards")
    after = {pod["metadata"]["uid"] for pod in await installed.list_pods("webhook")}
    assert len(after) == 2
    assert len(before & after) == (1 if replace is drain else 0)
    assert (stream.failures, stream.lost, stream.uninjected) == ([], 0, 0)


async def test_webhook_replicas_spread_over_two_nodes_again_after_a_drain(installed):
    await installed.plane.kubectl("uncordon", layout.NODES[1])
    await restart(installed)
    await installed.wait_available()
    assert {pod["spec"]["nodeName"] for pod in await installed.list_pods("webhook")} == set(layout.NODES)
