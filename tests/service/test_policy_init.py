"""`railwright policy init --from-cluster` reads an API server with its user's rights."""

import api_stub
import pytest
import pytest_asyncio
import simulated_clouds
from aiohttp import web

from railwright.cli.clouds import first_policies
from railwright.cli.clouds.first_policies import Kind
from railwright.cluster import errors

SHAPE = next(shape for shape in simulated_clouds.SHAPES if shape.profile.name == "gke-a3-ultra-dranet")
KINDS = {path: kind for kind, (path, _) in first_policies.VIEWS.items()}


class Objects:
    """An API server with the objects of a simulated cloud. Kinds in `forbidden` may not be listed."""

    def __init__(self):
        self.trees, self.forbidden, self.absent = simulated_clouds.build(SHAPE), set(), set()

    async def answer(self, request):
        kind = KINDS[request.path]
        if kind in self.forbidden:
            return api_stub.refuse(403, "Forbidden")
        if kind in self.absent:
            return web.Response(status=404, text="404 page not found\n")  # for a group that is not served
        return web.json_response({"metadata": {}, "items": self.trees[kind]})


@pytest_asyncio.fixture
async def served(tmp_path):
    objects = Objects()
    async with api_stub.serve(objects.answer) as port, api_stub.connected(tmp_path, port) as client:
        yield objects, client


async def test_nodes_networks_and_device_classes_are_listed(served):
    objects, client = served
    assert await first_policies.read_cluster(client) == simulated_clouds.read(objects.trees)


async def test_a_kind_that_is_not_served_has_no_objects_and_a_forbidden_one_is_reported_as_unread(served):
    objects, client = served
    objects.absent = {Kind.NETWORK, Kind.GKE_NETWORK}
    cluster = await first_policies.read_cluster(client)
    assert (cluster.names[Kind.NETWORK], cluster.unread) == (set(), frozenset())
    assert cluster.names[Kind.DEVICE_CLASS]
    objects.forbidden = {Kind.DEVICE_CLASS}
    assert (await first_policies.read_cluster(client)).unread == {Kind.DEVICE_CLASS}


async def test_a_caller_who_may_not_list_nodes_gets_an_error(served):
    objects, client = served
    objects.forbidden = {Kind.NODE}
    with pytest.raises(errors.ApiError, match="nodes"):
        await first_policies.read_cluster(client)
