"""Fixtures of the tests on a real control plane, which is started once for all folders.

A plugin, loaded by tests/conftest.py: the same fixtures in two conftest files would start two control planes. The
harness (tests/integration/plane) is imported when a test asks for it, because most runs have no such test.
"""

import contextlib
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

_failed: list[str] = []
_log_folders: list[pathlib.Path] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember that a test failed, so that logs are kept."""
    if report.failed:
        _failed.append(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the logs that were kept."""
    for logs in _log_folders:
        terminalreporter.write_line(f"logs of the control plane are kept in {logs}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plane():
    """Yield the control plane, started once a run. Its logs are kept, and named, where a test failed."""
    async with run_plane() as running:
        yield running


@contextlib.asynccontextmanager
async def run_plane(kind: type[Any] | None = None) -> AsyncIterator[Any]:
    """Run a control plane, of a subclass of plane.Plane where one is given."""
    from plane import plane as planes

    folder = pathlib.Path(tempfile.mkdtemp(prefix="railwright-plane-"))
    async with keep_logs(folder, folder / "logs"), planes.run(folder, kind or planes.Plane) as running:
        yield running


@contextlib.asynccontextmanager
async def keep_logs(folder: pathlib.Path, logs: pathlib.Path) -> AsyncIterator[None]:
    """Remove `folder` after the block, unless a test failed: then the logs are named at the end of the run."""
    finished = False
    try:
        yield
        finished = True
    finally:
        if finished and not _failed:
            shutil.rmtree(folder)
        else:
            _log_folders.append(logs)


@contextlib.asynccontextmanager
async def make_nodes(plane: Any) -> AsyncIterator[Any]:
    """Yield a factory of nodes; remove them at the end."""
    from plane import nodes as plane_nodes

    made = plane_nodes.Nodes(plane.api)
    yield made
    await made.remove()


@pytest_asyncio.fixture(loop_scope="session")
async def nodes(plane):
    """Yield a factory of nodes, which are removed after the test's namespace."""
    async with make_nodes(plane) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_nodes(plane):
    """Yield a factory of nodes for all tests of a file."""
    async with make_nodes(plane) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(plane, nodes):
    """Yield a namespace of the test's own, ready for pods; its pods are removed before its nodes."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await plane.make_namespace(name)
    yield name
    await plane.remove_namespace(name)


@pytest_asyncio.fixture(loop_scope="session")
async def controllers(plane):
    """Return the job controllers: `await controllers.start("mpi-operator")` starts a real one, once a run."""
    return plane.controllers


@pytest_asyncio.fixture(loop_scope="session")
async def site(plane):
    """Yield railwright on the plane for one test: roles, policy, servers, registration. Reset schedulers afterwards."""
    from plane import site as sites

    async with sites.running(plane) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_site(plane):
    """Yield railwright for all tests of a file; each calls `install`, and the webhook starts once."""
    from plane import site as sites

    async with sites.running(plane) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(plane):
    """Yield railwright for all tests of a file, and kube-scheduler, which calls its extender and counts the rails."""
    from plane import gangs

    async with gangs.running(plane) as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def both(plane):
    """Yield the installation of `kube` with Volcano as a second caller of its extender."""
    from plane import gangs

    async with gangs.beside_volcano(plane) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="session")
async def installed(request, namespace, module_site):  # in this order: it is unregistered before its namespace goes
    """Yield the installation of the file with its POLICY in force in the test's namespace."""
    yield await module_site.install(request.module.POLICY, namespace)
    await module_site.unregister()


@pytest.fixture
def person(plane, tmp_path):
    """Yield a user without permissions: `await person("explain", ...)` runs a command in the test's folder."""
    from plane import commands

    return commands.Person(plane, tmp_path)


@pytest_asyncio.fixture(loop_scope="session")
async def volcano_gangs(module_site, namespace):
    """Yield the Volcano jobs of the test's namespace; Volcano calls the extender of the file's installation."""
    from plane import volcano_gangs as gangs

    yield gangs.VolcanoGangs(module_site, namespace)
    module_site.proxy.hook = None


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def device_classes(request, plane):
    """Create the DeviceClasses in CLASSES of the file for all its tests."""
    for tree in request.module.CLASSES:
        await plane.api.create(tree)
    yield
    for tree in request.module.CLASSES:
        await plane.api.delete("DeviceClass", tree["metadata"]["name"])
