"""The control plane of the tests is real, does what they rely on, and its helpers fail when they should."""

import asyncio
import contextlib
import http.server
import json
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import aiohttp
import pytest
from plane import api, nodes, processes, registration, reverse_proxy, servers, volcano, waiting

VOLCANO_JOB = "batch.volcano.sh/v1alpha1/Job"


def volcano_job(name, replicas):
    container = {"name": "worker", "image": "worker", "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": 4}}}
    task = {"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"minAvailable": replicas, "schedulerName": "volcano", "tasks": [task]},
    }


def deployment(name, replicas, resources):
    labels = {"app": name}
    container = {"name": "server", "image": "server", "resources": {"limits": resources}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def running(plane, namespace, count):
    async def all_running():
        pods = await plane.api.list("Pod", namespace)
        assert len(pods) == count, f"{len(pods)} pods"
        not_yet = {pod["metadata"]["name"]: pod["status"] for pod in pods if pod["status"].get("phase") != "Running"}
        assert not not_yet, not_yet
        return pods

    return waiting.wait(all_running, seconds=60, describe=f"{count} running pods in {namespace}")


async def test_a_volcano_job_of_4_is_gang_placed_runs_and_keeps_running(plane, namespace, nodes):
    for number in range(4):
        await nodes.make(f"volcano-{number}", labels={"leaf": "a"})
    await plane.api.create(volcano_job("train", 4), namespace=namespace)
    pods = await running(plane, namespace, 4)
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"volcano-{number}" for number in range(4)}
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}
    # Volcano's webhooks answered: the queue is their default, not the API server's
    job = await plane.api.get(VOLCANO_JOB, "train", namespace)
    assert job["spec"]["queue"] == "default"

    async def is_counted():
        job = await plane.api.get(VOLCANO_JOB, "train", namespace)
        return job["status"].get("running") == 4

    await waiting.wait(is_counted, describe="the job to count its running pods")
    for _ in range(3):  # longer than kwok's own stages would let a Job's pod live
        await plane.schedulers.volcano_session()
    assert {pod["status"]["phase"] for pod in await plane.api.list("Pod", namespace)} == {"Running"}


async def test_a_gang_that_does_not_fit_whole_gets_nothing(plane, namespace, nodes):
    for number in range(3):
        await nodes.make(f"short-{number}")
    await plane.api.create(volcano_job("train", 4), namespace=namespace)

    async def list_conditions():
        groups = await plane.api.list("scheduling.volcano.sh/v1beta1/PodGroup", namespace)
        return [
            condition
            for group in groups
            for condition in group["status"].get("conditions", ())
            if condition["type"] == "Unschedulable"
        ]

    assert await waiting.wait(list_conditions, describe="the gang to be found unschedulable")
    assert not [pod for pod in await plane.api.list("Pod", namespace) if pod["spec"].get("nodeName")]


async def test_a_deployment_is_placed_by_kube_scheduler_by_rails(plane, namespace, nodes):
    await nodes.make("bare", rails={})
    await nodes.make("railed", rails={"nvidia.com/mlx5_0": 1})
    await plane.api.create(deployment("serve", 1, {"nvidia.com/mlx5_0": 1}), namespace=namespace)
    (pod,) = await running(plane, namespace, 1)
    assert (pod["spec"]["nodeName"], pod["spec"]["schedulerName"]) == ("railed", "default-scheduler")


async def test_a_node_has_the_shape_asked_for_and_can_change_it(plane, nodes):
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    made = await nodes.make(
        "odd", gpus=3, rails={"x/y": 7}, labels={"leaf": "l1"}, cpu="5", memory="6Gi", taints=[taint]
    )
    allocatable = made["status"]["allocatable"]
    assert allocatable == {"cpu": "5", "memory": "6Gi", "pods": "110", "nvidia.com/gpu": "3", "x/y": "7"}
    assert made["metadata"]["labels"]["leaf"] == "l1"
    assert taint in made["spec"]["taints"]
    await nodes.resize("odd", {"x/y": 0})
    assert (await plane.api.get("Node", "odd"))["status"]["allocatable"]["x/y"] == "0"


async def test_a_new_volcano_configuration_is_in_force_when_the_call_returns(plane, schedulers, extender_proxy):
    await schedulers.volcano(volcano.extender(extender_proxy.url))  # dead behind the proxy, and ignorable
    before = extender_proxy.counts["/session-close"]
    await schedulers.volcano_session()
    assert extender_proxy.counts["/session-close"] > before
    await schedulers.volcano()
    after = extender_proxy.counts["/session-close"]
    await schedulers.volcano_session()
    assert extender_proxy.counts["/session-close"] == after


async def test_a_volcano_configuration_that_volcano_refuses_fails_the_call_with_its_words(schedulers):
    with pytest.raises(AssertionError, match="no-such-action"):
        await schedulers.volcano(conf={**volcano.conf(), "actions": "no-such-action"})


async def test_kube_scheduler_asks_an_extender_once_it_is_configured(
    plane, namespace, nodes, schedulers, extender_proxy
):
    await nodes.make("only")
    with serve_scripted_extender() as (port, bodies):
        extender_proxy.backend = port
        entry = {"urlPrefix": extender_proxy.url, "filterVerb": "filter", "nodeCacheCapable": True, "weight": 1}
        await schedulers.kube(entry)
        await plane.api.create(deployment("asked", 1, {"cpu": 1}), namespace=namespace)
        await running(plane, namespace, 1)
    assert extender_proxy.counts["/filter"] == 1
    assert json.loads(bodies[0])["NodeNames"] == ["only"]


@contextlib.contextmanager
def serve_scripted_extender():
    """Yield a kube-scheduler extender that lets every node pass; yields its port and the bodies it got."""
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps({"NodeNames": json.loads(bodies[-1])["NodeNames"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, bodies
        server.shutdown()
        thread.join()


async def test_our_webhook_registration_is_in_force_when_the_call_returns_and_in_its_namespace_only(
    plane, namespace, extender_proxy
):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {registration.FABRIC: "roce"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    # Nothing listens behind the proxy: failurePolicy Fail refuses opted-in pods, and only those.
    await plane.register_webhook(extender_proxy.port, namespaces=[namespace])
    try:
        with pytest.raises(api.ApiError, match=r"pods\.railwright\.io"):
            await plane.api.create(pod, namespace=namespace)
        plain = {**pod, "metadata": {"name": "plain"}}
        await plane.api.create(plain, namespace=namespace)
        await plane.api.create(pod, namespace="default", dry_run=True)
    finally:
        await plane.unregister_webhook(namespaces=[namespace])
    await plane.api.create(pod, namespace=namespace)


async def test_network_attachment_definitions_can_be_made(plane, namespace):
    name = "k8s.v1.cni.cncf.io/resourceName"
    await plane.apply(
        f"""
        apiVersion: k8s.cni.cncf.io/v1
        kind: NetworkAttachmentDefinition
        metadata: {{name: rail0, annotations: {{{name}: nvidia.com/mlx5_0}}}}
        spec: {{config: '{{"cniVersion": "0.3.1", "type": "host-device"}}'}}
        """,
        namespace=namespace,
    )
    assert "rail0" in await plane.kubectl("get", "net-attach-def", "-n", namespace, "-o", "name")


async def test_a_watch_tells_what_happens(plane, namespace):
    async def first_added():
        async for kind, config_map in plane.api.watch("ConfigMap", namespace):
            if config_map["metadata"]["name"] == "watched":
                return kind, config_map["data"]
        raise AssertionError("the watch ended")

    task = asyncio.create_task(first_added())
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched"}, "data": {"a": "b"}}
    await plane.api.create(body, namespace=namespace)
    assert await asyncio.wait_for(task, 10) == ("ADDED", {"a": "b"})


async def test_kubectl_failures_carry_kubectls_words(plane):
    with pytest.raises(AssertionError, match="NotFound"):
        await plane.kubectl("get", "node", "no-such-node")


async def test_a_wait_that_fails_shows_what_it_saw_last():
    with pytest.raises(AssertionError, match=r"waited 0\.05 s for paint to dry\nlast seen: AssertionError: still wet"):
        await waiting.wait(still_wet, seconds=0.05, describe="paint to dry")


def still_wet():
    raise AssertionError("still wet")


async def test_waiting_for_a_line_of_a_program_that_died_fails_at_once_with_its_log(tmp_path):
    process = processes.Process("dying", [sys.executable, "-c", "print('last words')"], logs=tmp_path).start()
    with pytest.raises(AssertionError, match=r"(?s)dying ended.*last words"):
        await process.line("never written", seconds=60)
    await process.stop()


def test_a_program_dies_with_the_run_that_started_it(tmp_path):
    """SIGKILL to the parent, which no handler can answer, still leaves nothing behind."""
    parent = textwrap.dedent(
        f"""
        import pathlib, sys, time
        sys.path.insert(0, {str(processes._PARENT_DEATH.parents[1])!r})
        from plane import processes
        child = processes.Process("child", ["sleep", "600"], logs=pathlib.Path({str(tmp_path)!r})).start()
        print(child.pid, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as started:
        child = int(started.stdout.readline())
        assert alive(child)
        started.send_signal(signal.SIGKILL)
    asyncio.run(waiting.wait(lambda: not alive(child), seconds=10, describe=f"child {child} to die"))


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_door_counts_requests_and_a_hook_can_kill_what_is_behind_it(plane, extender_proxy):
    body = {"NodeNames": ["n"]}

    async def ask():
        async with plane.session.post(f"{extender_proxy.url}/filter", json=body) as answer:
            return await answer.json(content_type=None)

    async def kill(request):
        assert request == reverse_proxy.Request("POST", "/filter")
        extender_proxy.backend = None

    with serve_scripted_extender() as (port, bodies):
        extender_proxy.backend = port
        assert [await ask(), await ask()] == [body, body]  # the second over the same connection
        extender_proxy.hook = kill
        with pytest.raises(aiohttp.ClientConnectionError):
            await ask()
        assert (extender_proxy.counts["/filter"], len(bodies)) == (3, 2)
        extender_proxy.hook = None
        extender_proxy.backend = port
        assert await ask() == body


async def test_a_door_passes_every_byte_whatever_the_framing(extender_proxy):
    sent = [
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
        b"POST /b HTTP/1.1\r\nhost: x\r\ncontent-length:  300000\r\n\r\n" + b"\r\n\r\n" * 75000,
        b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    whole = b"".join(sent)
    received = asyncio.get_running_loop().create_future()

    async def backend(reader, writer):
        received.set_result(await reader.readexactly(len(whole)))
        writer.close()

    async with await asyncio.start_server(backend, "127.0.0.1", 0) as server:
        extender_proxy.backend = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", extender_proxy.port)
        writer.write(whole)
        assert await asyncio.wait_for(received, 10) == whole
        writer.close()
        await writer.wait_closed()
    assert extender_proxy.counts == {"/a": 1, "/b": 1, "/c": 1}


async def test_a_server_of_ours_is_known_by_the_two_lines_it_writes_and_ready_by_its_probe(plane, tmp_path):
    script = textwrap.dedent(
        """
        import http.server, sys
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if self.path == "/readyz" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
        ops = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        print("a log line about listening on 127.0.0.1:1", file=sys.stderr)
        print("listening on 127.0.0.1:4242", file=sys.stderr, flush=True)
        print(f"ops listening on 127.0.0.1:{ops.server_port}", file=sys.stderr, flush=True)
        ops.serve_forever()
        """
    )
    process = processes.Process("ours", [sys.executable, "-c", script], logs=tmp_path)
    server = await servers.Server(process, plane.session).start()
    assert server.port == 4242
    await server.ready()
    assert await server.stop() == -signal.SIGTERM
    assert not process.running


def test_our_servers_listen_on_free_ports_unless_told_otherwise():
    assert servers.command("webhook", ("--listen=127.0.0.1:7",))[2:] == [
        "webhook",
        "--ops-listen",
        "127.0.0.1:0",
        "--listen=127.0.0.1:7",
    ]


async def test_rails_are_those_of_the_seed_jobs_cluster():
    assert list(nodes.RAILS) == ["nvidia.com/mlx5_0", "nvidia.com/mlx5_1", "nvidia.com/mlx5_2", "nvidia.com/mlx5_3"]
