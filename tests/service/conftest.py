"""Fixtures of service tests: a cluster, and commands on it."""

import asyncio

import api_stub
import objects_stub
import pytest
import pytest_asyncio

from railwright.cli import __main__ as command_line


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(tmp_path):
    """Yield an API server with the objects that the test stores; other kinds are not served."""
    async with objects_stub.serving(objects_stub.Objects(is_strict=True)) as objects:
        objects.kubeconfig = api_stub.kubeconfig(tmp_path, objects.port)
        yield objects


@pytest.fixture
def run(cluster, capsys):
    """Return `await run("gangs", "-o", "json")`: run a command on the cluster; return exit code, stdout and stderr."""

    async def call(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(command_line.main, [*words, "--kubeconfig", cluster.kubeconfig])
        return code, *capsys.readouterr()

    return call
