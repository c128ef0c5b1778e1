"""railwright as it ships: the image of the Containerfile, installed by the chart with default values, on real nodes."""

import asyncio
import functools
import os
import re
import signal

import pytest
from plane import load, manifests, waiting
from realnode import containers, installation, layout

RESOURCE = "nvidia.com/mlx5_0"
# seconds after the program has begun; on an idle core it serves after less than one
DELAYS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0)
END_SECONDS = 1.0  # without waiting for a CPU; a server that drains takes ten, kubelet's grace is 45


async def test_pods_run_on_separate_nodes_without_a_restart(installed):
    for component in ("certs", "extender", "webhook"):
        pods = await installed.list_pods(component)
        assert {pod["spec"]["nodeName"] for pod in pods} == set(layout.NODES), component
        for pod in pods:
            (status,) = pod["status"]["containerStatuses"]
            assert status["restartCount"] == 0, pod["metadata"]["name"]


async def test_containers_run_as_65532_on_a_read_only_root(installed):
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
    assert sum(check["state"] == "ok" for check in report["checks"]) > 20


async def test_helm_test_passes(installed):
    output = await installed.helm("test", "railwright")
    assert set(re.findall(r"Phase:\s+(\w+)", output)) == {"Succeeded"}, output


async def restart(release):
    deployment = ("deployment/railwright-webhook", f"--namespace={installation.NAMESPACE}")
    await release.plane.kubectl("rollout", "restart", *deployment)


async def upgrade(release):
    await release.helm.upgrade("--set=webhook.extraArgs={--max-body=3000000}")


async def roll_back(release):
    await release.helm("rollback", "railwright", "1")


async def drain(release):
    await release.plane.kubectl("drain", layout.NODES[1], "--delete-emptydir-data", seconds=150)


@pytest.mark.parametrize("replace", [restart, upgrade, roll_back, drain])
async def test_no_pod_is_rejected_or_missed_while_webhooks_are_replaced(installed, pod_namespace, replace):
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


async def test_webhooks_are_on_two_nodes_again_after_a_drain(installed):
    await installed.plane.kubectl("uncordon", layout.NODES[1])
    await restart(installed)
    await installed.wait_available()
    assert {pod["spec"]["nodeName"] for pod in await installed.list_pods("webhook")} == set(layout.NODES)


@pytest.mark.parametrize("component", ["webhook", "extender", "certs"])
async def test_sigterm_during_start_ends_a_server_at_once(installed, component):
    """The servers have no valid policy: they never become ready, however quickly they start, and so must not drain.

    They are not PID 1, for which the kernel would drop a signal before the program has a handler.
    """
    api = installed.plane.api
    template = (await api.get("apps/v1/Deployment", f"railwright-{component}", installation.NAMESPACE))["spec"][
        "template"
    ]
    late = []
    for index, delay in enumerate(DELAYS):
        node = installed.site.nodes[layout.NODES[index % 2]]
        name = f"starting-{component}-{index}"
        pod = await api.create(describe_start(name, template["spec"], node.name), namespace=installation.NAMESPACE)
        find = functools.partial(containers.find_process, node.settings.cgroup, pod["metadata"]["uid"], component)
        pid = await waiting.wait(find, seconds=240, describe=f"the process of {name}")
        await asyncio.sleep(delay)
        os.kill(pid, signal.SIGTERM)
        if (seconds := await containers.measure_end(pid, seconds=10)) > END_SECONDS:
            late.append((delay, seconds))
        await api.delete("Pod", name, installation.NAMESPACE, grace=0)
    assert late == [], "the signal was lost, or the server drained, although it has never been ready"


def describe_start(name, spec, node):
    """Return a pod that starts a server as its Deployment does, behind no Service and without restarts.

    A server that drains reads a file that is no policy.
    """
    alone = {key: value for key, value in spec.items() if key not in ("affinity", "topologySpreadConstraints")}
    (container,) = spec["containers"]
    arguments = container["args"] if container["name"] == "certs" else [*container["args"], "--policy=/etc/hostname"]
    changes = {"nodeName": node, "restartPolicy": "Never", "containers": [{**container, "args": arguments}]}
    return manifests.build("Pod", name, spec={**alone, **changes})
