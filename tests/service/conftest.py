"""Fixtures of service tests: a cluster for commands, and controllers of the webhook with an API server."""

import asyncio

import api_stub
import controller_replicas
import objects_stub
import pytest
import pytest_asyncio

from railwright.cli import __main__ as command_line
from railwright.cluster import client as clients


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


@pytest_asyncio.fixture(loop_scope="session")
async def server():
    """Yield an API server that stores the objects of a controller."""
    async with objects_stub.serving() as objects:
        yield objects


@pytest_asyncio.fixture(loop_scope="session")
async def start_controller(server, tmp_path):
    """Yield `start_controller(policy)`: start a replica with a controller of the webhook."""
    client = await clients.connect(api_stub.kubeconfig(tmp_path, server.port))
    tasks = []

    def run(policy) -> controller_replicas.Replica:
        replica = controller_replicas.Replica(client, policy)
        tasks.append(asyncio.create_task(replica.controller.run()))
        return replica

    yield run
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
