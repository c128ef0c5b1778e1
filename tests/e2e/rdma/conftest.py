"""Fixtures of tests on nodes in virtual machines, whose kernel has RDMA devices."""

import asyncio

import debian
import pytest
import pytest_asyncio
from realnode import builds, mpi_image, rdma_image


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def virtual_nodes(installed, real_site):
    """Yield the virtual nodes by name; they are part of the site during the tests of this folder."""
    from realnode import virtual_node

    if not builds.locate_kubelet().exists():
        pytest.skip(f"{builds.locate_kubelet()} is missing; run: .venv/bin/python tests/e2e/build.py")
    try:
        await real_site.load(await asyncio.to_thread(rdma_image.build))
        async with virtual_node.join(real_site) as nodes:
            yield {node.name: node for node in nodes}
    except debian.UnavailableError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def resolving_nodes(virtual_nodes, installed):
    """Yield the nodes with railwright's image, in which the init container of a pod finds the rails.

    The policy has the fabrics of `rails.describe_soft_roce_policy` meanwhile.
    """
    from realnode import rails

    for image in (installed.image, await asyncio.to_thread(mpi_image.build)):
        await asyncio.gather(*(node.load(image) for node in virtual_nodes.values()))
    await installed.set_policy(rails.describe_soft_roce_policy(installed.image))
    await installed.wait_fabric("soft-roce", rails.NAMESPACE)
    yield virtual_nodes
    await installed.set_policy(rails.describe_policy(installed.image))
