"""Two rotators on the same Secrets: the API server refuses the write of the one that has read an older version."""

import asyncio
import json

import msgspec
import pytest

from certs import installation, inventory, schedules
from railwright.cluster import errors

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


def build_error(status: int) -> errors.ApiError:
    return errors.ApiError(status, "", "", "")


class Cluster:
    """An API server with Secrets, as a client. Before each write, `others` may write first."""

    host = "cluster"

    def __init__(self) -> None:
        self.stored: dict[str, dict] = {}
        self.writes: list[tuple[str, str]] = []  # content type, name
        self.others = None
        self._version = 0

    async def get(self, path: str) -> bytes:
        if path not in self.stored:
            raise build_error(404)
        return json.dumps(self.stored[path]).encode()

    async def patch(self, path: str, body: object, content_type: str) -> bytes:
        others, self.others = self.others, None
        if others is not None:
            await others()
        path, document = path.partition("?")[0], msgspec.to_builtins(body)
        present = self.stored.get(path)
        if content_type == APPLY:  # without force
            assert not any(document["data"].values()), "content is written by version only"
            if present is not None and any(present["data"].values()):
                raise build_error(409)
        else:
            assert content_type == MERGE
            if document["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]:
                raise build_error(409)
        self._version += 1
        self.writes.append((content_type, path.rpartition("/")[2]))
        old = present or {"data": {}, "metadata": {}}
        self.stored[path] = {
            "data": {key: value for key, value in {**old["data"], **document["data"]}.items() if value is not None},
            "metadata": {**old["metadata"], **document["metadata"], "resourceVersion": str(self._version)},
        }
        return json.dumps(self.stored[path]).encode()


def build_rotator(cluster: Cluster) -> installation.Rotator:
    specs = inventory.list_specs("railwright-system")
    return installation.Rotator(cluster, "railwright-system", specs, schedule=schedules.Schedule(), clock=lambda: 0.0)


def read(cluster: Cluster) -> dict[str, dict]:
    return {path.rpartition("/")[2]: secret["data"] for path, secret in cluster.stored.items()}


@pytest.mark.parametrize("is_shipped", [True, False], ids=["empty Secrets", "no Secrets"])
def test_of_two_rotators_that_begin_at_once_one_writes_the_ca(is_shipped):
    cluster = Cluster()
    if is_shipped:
        for name in inventory.SECRETS.values():
            path = f"/api/v1/namespaces/railwright-system/secrets/{name}"
            cluster.stored[path] = {"data": {}, "metadata": {"name": name, "resourceVersion": "0"}}
    first, second = build_rotator(cluster), build_rotator(cluster)
    held = {}

    async def be_faster() -> None:
        await second.step()
        held.update(read(cluster))

    async def run() -> None:
        cluster.others = be_faster
        with pytest.raises(errors.ApiError) as raised:
            await first.step()
        assert raised.value.status in installation.CONFLICTS

    asyncio.run(run())
    assert held["railwright-ca"]["next.crt"]
    assert read(cluster) == held, "the first has changed nothing"
    asyncio.run(first.step())
    assert read(cluster)["railwright-ca"]["tls.crt"] == held["railwright-ca"]["next.crt"], "it goes on with that CA"
