"""System calls of a request: a count, which a busy machine does not change."""

import asyncio
import os
import pathlib
import re
import sys

import pytest
import shell

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_request_over_tls_takes_no_page_faults(tmp_path):
    """uvloop's buffer of each TLS read costs four a request where the allocator's threshold is not raised."""
    authority = shell.Authority(tmp_path)
    certificate, key = shell.write_pair(tmp_path, authority.leaf("a"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(pathlib.Path(__file__).with_name("echo_server.py"))),
        *("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-seconds", "0"),
        *("--tls-cert", str(certificate), "--tls-key", str(key)),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": "131072"},  # where a process may start
    )
    try:
        async with asyncio.timeout(30):
            while not (match := re.match(rb"listening on .*:(\d+)", await process.stderr.readline())):
                pass
        open_ = asyncio.open_connection(
            "127.0.0.1", int(match[1]), ssl=authority.context(), server_hostname="localhost"
        )
        caller = shell.Caller(*await open_)
        body = b'{"review": "' + b"x" * 9000 + b'"}'  # the size of a real one
        for _ in range(50):
            await caller.ask(body)
        before = faults(process.pid)
        for _ in range(200):
            assert (await caller.ask(body)).status == 200
        assert faults(process.pid) - before < 100  # 800 with the allocator's own threshold
        await caller.close()
    finally:
        process.terminate()
        await process.communicate()


def faults(pid: int) -> int:
    """Minor page faults of a process so far: field 10 of /proc/PID/stat, counted behind the name in brackets."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
