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
from plane import api, processes, registration, reverse_proxy, volcano, waiting


async def test_a_node_has_the_requested_shape(plane, nodes):
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


async def test_a_volcano_configuration_is_in_force_at_once(plane, schedulers, extender_proxy):
    await schedulers.volcano(volcano.extender(extender_proxy.url))  # dead behind the proxy, and ignorable
    before = extender_proxy.counts["/session-close"]
    await schedulers.volcano_session()
    assert extender_proxy.counts["/session-close"] > before
    await schedulers.volcano()
    after = extender_proxy.counts["/session-close"]
    await schedulers.volcano_session()
    assert extender_proxy.counts["/session-close"] == after


async def test_a_refused_volcano_configuration_raises(schedulers):
    with pytest.raises(AssertionError, match="no-such-action"):
        await schedulers.volcano(conf={**volcano.conf(), "actions": "no-such-action"})


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


async def test_a_registration_is_in_force_in_its_namespace(plane, namespace, extender_proxy):
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


async def test_a_watch_returns_the_changes(plane, namespace):
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


async def test_waiting_for_a_dead_program_fails_with_its_log(tmp_path):
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


async def test_the_proxy_counts_requests_and_calls_its_hook(plane, extender_proxy):
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


async def test_the_proxy_passes_every_byte(extender_proxy):
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
