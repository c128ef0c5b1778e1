"""Ctrl-C ends a command without a traceback, and removes the copies of a kubeconfig's keys.

While modules are imported, while a credential plugin runs, and while the API server is silent.
"""

import asyncio
import base64
import datetime as dt
import os
import pathlib
import signal

import api_stub
import processes
import pytest
import shell

from certs import pki

PLUGIN = """#!/bin/sh
: > "$0.runs"
sleep 50
"""


@pytest.fixture
def kubeconfig(tmp_path):
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}, interactiveMode: Never}}}}"
    return pathlib.Path(api_stub.kubeconfig(tmp_path, 1, user=user))


@pytest.mark.parametrize(  # the signal goes to the command only, or to all processes of a terminal
    ("command", "send"),
    [("check", os.kill), ("gangs", os.killpg)],
)
async def test_ctrl_c_while_a_credential_plugin_runs_prints_nothing(kubeconfig, command, send):
    process = await processes.start_command(command, "--kubeconfig", str(kubeconfig), start_new_session=True)
    try:
        async with asyncio.timeout(shell.PATIENCE):
            while not kubeconfig.with_name("plugin.runs").exists():  # noqa: ASYNC110 - another process creates it
                await asyncio.sleep(0.02)
            send(process.pid, signal.SIGINT)
            await process.wait()
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # the plugin has ended too
        pass
    out, message = await process.communicate()
    assert (process.returncode, out, message) == (130, b"", b"")


@pytest.mark.parametrize("module", ["railwright.cli.output", "aiohttp"])
async def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(kubeconfig, module):
    words = ("-X", "importtime", "-m", "railwright.cli", "gangs", "--kubeconfig", str(kubeconfig))
    process = await processes.start_python(*words)
    async with asyncio.timeout(shell.PATIENCE):
        while (await process.stderr.readline()).split()[-1:] != [module.encode()]:
            pass
        process.send_signal(signal.SIGINT)
        out, message = await process.communicate()
    assert process.returncode in (130, -signal.SIGINT), message  # shells show 130 for both
    assert out == b""
    assert b"Traceback" not in message
    assert b"KeyboardInterrupt" not in message


async def test_ctrl_c_leaves_no_key_of_the_kubeconfig_on_the_disk(tmp_path, monkeypatch):
    asked, copies = asyncio.Event(), tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setenv("TMPDIR", str(copies))
    pair = pki.issue_ca("user", now=dt.datetime.now(dt.UTC), lifetime=dt.timedelta(days=1))
    (tmp_path / "ca.crt").write_bytes(pair.certificate_pem)
    certificate, key = (base64.b64encode(pem).decode() for pem in (pair.certificate_pem, pair.key_pem))
    user = f"{{client-certificate-data: {certificate}, client-key-data: {key}}}"

    async def be_silent(reader, writer):
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(be_silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        path = api_stub.kubeconfig(tmp_path, port, user=user, ca=tmp_path / "ca.crt")
        process = await processes.start_command("gangs", "--kubeconfig", path)
        async with asyncio.timeout(shell.PATIENCE):
            await asked.wait()
            assert list(copies.iterdir()), "the library writes the key to a file"
            process.send_signal(signal.SIGINT)
            out, message = await process.communicate()
    assert (process.returncode, out, message) == (130, b"", b"")
    assert list(copies.iterdir()) == []
