"""Ctrl-C ends a command without a traceback: while modules are imported, and while a credential plugin runs."""

import asyncio
import os
import pathlib
import signal

import api_stub
import processes
import pytest
import shell

from railwright.fabric import version

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
    [("check", os.kill), ("version", os.killpg)],
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
    assert (process.returncode, message) == (130, b"")
    assert out in (b"", f"client    {version.VERSION}\n".encode())  # what `version` knows without a cluster


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
