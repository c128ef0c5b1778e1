"""Fixtures of tests on real nodes: kubelet, containerd, Multus and a device plugin run in Linux namespaces."""

import asyncio
import pathlib
import shutil
import tempfile
import uuid

import debian
import plane_fixtures
import pytest
import pytest_asyncio
from realnode import builds, machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that need a cluster without railwright first: an installation stays until the end of the run."""
    folder = pathlib.Path(__file__).parent
    items.sort(key=lambda item: folder in item.path.parents and "installed" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def capable_machine():
    """Skip the test if the machine cannot run real nodes, before anything is built."""
    if reason := machine.find_obstacle():
        pytest.skip(reason)
    try:
        builds.fetch_packages()
    except debian.UnavailableError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_site(capable_machine):
    """Yield a control plane and two real nodes, started once a run."""
    from realnode import site

    folder = pathlib.Path(tempfile.mkdtemp(prefix="railwright-site-"))
    async with plane_fixtures.keep_logs(folder, site.logs_in(folder)), site.run(folder) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed(real_site, tmp_path_factory):
    """Return an installation of the chart, with only the image set, and a policy."""
    from realnode import installation, project_image, rails

    if reason := project_image.find_obstacle():
        pytest.skip(reason)
    image = await asyncio.to_thread(project_image.build)
    release = installation.Installation(real_site, image, tmp_path_factory.mktemp("helm"))
    await rails.install(real_site.plane)
    await release.install(rails.describe_policy(image))
    return release  # it goes with the site


@pytest_asyncio.fixture(loop_scope="session")
async def pod_namespace(real_site):
    """Yield a namespace of the test's own, ready for pods; its pods and their addresses are removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await real_site.plane.make_namespace(name)
    yield name
    await real_site.plane.remove_namespace(name)


@pytest_asyncio.fixture(loop_scope="session")
async def create(installed):
    """Create a pod in the namespace of the rails; it is deleted afterwards."""
    from realnode import rails

    names = []

    async def create_pod(pod: dict) -> dict:
        created = await installed.plane.api.create(pod, namespace=rails.NAMESPACE)
        names.append(created["metadata"]["name"])
        return created

    yield create_pod
    for name in names:
        await installed.plane.api.delete("Pod", name, rails.NAMESPACE, grace=0)


@pytest.fixture(scope="session")
def load_image(real_site):
    """Return `await load_image(build)`: load an image of Debian packages on both nodes; skip without the packages."""

    async def load(build) -> None:
        try:
            image = await asyncio.to_thread(build)
        except debian.UnavailableError as error:
            pytest.skip(str(error).splitlines()[0])
        await real_site.load(image)

    return load


@pytest.fixture
def scratch_folder():
    """Yield a folder on the disk of /tmp, removed afterwards."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="railwright-site-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
