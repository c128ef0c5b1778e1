"""Requests to the API server: served APIs, pages of lists, and the message about a missing right."""

import asyncio
import contextlib

import msgspec
import pytest

from railwright.cluster import errors, failures, resources, sources, watch_wire

SERVED = "scheduling.k8s.io/v1beta1"


class Client:
    """An API server that answers each GET with the next of these statuses, and at last with 200."""

    def __init__(self, *statuses):
        self.statuses, self.paths = list(statuses), []

    async def get(self, path):
        self.paths.append(path)
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            raise errors.ApiError(errors.ErrorResponse(status, "", "", path), "")
        return b"{}"


async def test_an_api_that_is_not_served_is_left_out():
    client = Client(404)
    assert await sources.find_served(client, [SERVED, "x/v1"]) == {"x/v1"}
    assert client.paths == [f"/apis/{SERVED}", "/apis/x/v1"]


async def test_any_other_error_is_no_answer():
    with pytest.raises(errors.ApiError):
        await sources.find_served(Client(500), [SERVED])


async def test_a_failed_answer_changes_nothing_and_is_tried_again(monkeypatch):
    monkeypatch.setattr(sources, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(sources, "_IDLE_SECONDS", 0)
    asked, reports, client = [(), (SERVED,), (SERVED,)], [], Client(500)
    done = asyncio.Event()

    def report(served):
        reports.append(served)
        done.set()

    task = asyncio.create_task(sources.keep_asking(client, lambda: asked.pop(0), report))
    async with asyncio.timeout(60):
        await done.wait()
    task.cancel()
    assert reports == [{SERVED}]
    assert len(client.paths) == 2, "nothing is asked until a policy needs it"


# --- pages of a list: the next is on its way while the caller processes one -----------------------------------


PAGE = b'{"metadata":{"resourceVersion":"5","continue":"%b"},"items":[]}'


class Pages:
    """Serves two pages, and answers a request for one only when the test allows it."""

    host = "http://127.0.0.1"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled = 0
        self.let = asyncio.Event()

    async def get(self, _: str, query: dict[str, str]) -> bytes:
        self.asked.append(query.get("continue", ""))
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return PAGE % (b"" if "continue" in query else b"second")


async def test_the_next_page_is_requested_while_one_is_processed():
    client = Pages()
    client.let.set()
    async with contextlib.aclosing(watch_wire.read_pages(client, "/nodes", {})) as pages:
        await anext(pages)
        await asyncio.sleep(0)
        assert client.asked == ["", "second"]
        assert (await anext(pages)).metadata == watch_wire.ListMeta(resource_version="5")
        with pytest.raises(StopAsyncIteration):
            await anext(pages)
    assert client.asked == ["", "second"]


async def test_leaving_early_cancels_the_request_for_the_next_page():
    client = Pages()
    client.let.set()
    async with contextlib.aclosing(watch_wire.read_pages(client, "/nodes", {})) as pages:
        await anext(pages)
        client.let.clear()
        await asyncio.sleep(0)
    assert (client.asked, client.cancelled) == (["", "second"], 1)


def test_a_view_has_the_identity_of_its_object():
    """The first list is read by its view only, and later ones are compared with what that gave."""
    raw = b'{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}'
    identity = watch_wire.decode_identified(raw).metadata
    for kind in (kind for kind in vars(resources).values() if isinstance(kind, resources.Kind)):
        meta = msgspec.json.decode(raw, type=kind.view).metadata
        found = meta.namespace, meta.name, meta.uid, meta.resource_version
        assert found == msgspec.structs.astuple(identity), kind.name


# --- a request that is rejected: the exact right, who grants it, and how to check it --------------------------


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/api/v1/pods", "list pods -A"),
        ("GET", "/api/v1/nodes?limit=5", "list nodes -A"),
        ("GET", "/api/v1/namespaces/own/configmaps/policy", "get configmaps/policy -n own"),
        ("POST", "/api/v1/namespaces/pods/pods?dryRun=All", "create pods -n pods"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l", "update leases.coordination.k8s.io/l -n x"),
        ("PATCH", "/apis/apps/v1/deployments/railwright", "patch deployments.apps/railwright -A"),
        ("GET", "/api/v1/namespaces/own/services/x/proxy", "get services/x --subresource=proxy -n own"),
        ("GET", "/api/v1/namespaces/prod", "get namespaces/prod -A"),
    ],
)
def test_a_forbidden_request_names_the_right_and_how_to_check_it(method, path, right):
    role = "Role" if " -n " in right else "ClusterRole"
    response = errors.ErrorResponse(403, "Forbidden", 'User "dev" cannot', path, method=method)
    assert failures.build_api_error(response).sentence == (
        f'you may not {right} (403 Forbidden: User "dev" cannot); ask an administrator of the cluster for a {role} '
        f"with this right (kubectl auth can-i {right}), or use an account that has it"
    )


def test_a_forbidden_path_that_is_no_resource_has_no_name():
    sentence = failures.build_api_error(errors.ErrorResponse(403, "Forbidden", "no", "/version")).sentence
    assert sentence.startswith(
        "you may not read this (403 Forbidden: no); ask an administrator of the cluster for a ClusterRole with this"
    )


def test_the_error_page_of_a_proxy_is_not_quoted():
    response = errors.ErrorResponse(403, "Forbidden", "<html>x</html>", "/api/v1/nodes", foreign=True)
    sentence = failures.build_api_error(response).sentence
    assert sentence.startswith("you may not list nodes -A (403 Forbidden); ask")
