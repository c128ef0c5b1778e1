"""Requests to the API server: served APIs, pages of lists, and the message about a missing right."""

import asyncio
import contextlib

import msgspec
import pytest

from railwright.cluster import discovery, errors, failures, resources, watch_wire

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
    assert await discovery.find_served(client, [SERVED, "x/v1"]) == {"x/v1"}
    assert client.paths == [f"/apis/{SERVED}", "/apis/x/v1"]


async def test_any_other_error_is_no_answer():
    with pytest.raises(errors.ApiError):
        await discovery.find_served(Client(500), [SERVED])


async def test_a_failed_answer_changes_nothing_and_is_tried_again(monkeypatch):
    monkeypatch.setattr(discovery, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(discovery, "_IDLE_SECONDS", 0)
    asked, reports, client = [(), (SERVED,), (SERVED,)], [], Client(500)
    done = asyncio.Event()

    def report(served):
        reports.append(served)
        done.set()

    task = asyncio.create_task(discovery.keep_asking(client, lambda: asked.pop(0), report))
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


@pytest.mark.parametrize("kind", [kind for kind in vars(resources).values() if isinstance(kind, resources.Kind)])
def test_a_view_has_the_identity_of_its_object(kind):
    """The first list is read by its view only, and later ones are compared with what that gave."""
    raw = b'{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}'
    meta = msgspec.json.decode(raw, type=kind.view).metadata
    identity = watch_wire.decode_identified(raw).metadata
    assert (meta.namespace, meta.name, meta.uid, meta.resource_version) == msgspec.structs.astuple(identity)


# --- a request that is rejected: the exact right, who grants it, and how to check it --------------------------


SYSTEM = "/api/v1/namespaces/railwright-system"
ADMISSION = "admissionregistration.k8s.io"


@pytest.mark.parametrize(
    ("request_line", "right", "fix"),
    [
        ("GET /api/v1/pods", "list pods in all namespaces", "with list on pods (kubectl auth can-i list pods -A), or"),
        ("GET /api/v1/nodes?limit=5", "list nodes", "with list on nodes (kubectl auth can-i list nodes)"),
        (
            f"GET {SYSTEM}/configmaps/railwright-policy",
            "get configmaps railwright-policy in namespace railwright-system",
            "get on configmaps (kubectl auth can-i get configmaps/railwright-policy -n railwright-system)",
        ),
        (
            "POST /api/v1/namespaces/pods/pods?dryRun=All",
            "create pods in namespace pods",
            "a Role in namespace pods with create on pods (kubectl auth can-i create pods -n pods)",
        ),
        (
            "PUT /apis/coordination.k8s.io/v1/namespaces/x/leases/l",
            "update leases.coordination.k8s.io l in namespace x",
            "(kubectl auth can-i update leases.coordination.k8s.io/l -n x)",
        ),
        (
            f"PATCH /apis/{ADMISSION}/v1/mutatingwebhookconfigurations/railwright",
            f"patch mutatingwebhookconfigurations.{ADMISSION} railwright",
            f"a ClusterRole with patch on mutatingwebhookconfigurations.{ADMISSION}",
        ),
        (
            f"GET {SYSTEM}/services/railwright-extender/proxy",
            "get services/proxy railwright-extender in namespace railwright-system",
            "kubectl auth can-i get services/railwright-extender --subresource=proxy -n railwright-system",
        ),
        ("GET /api/v1/namespaces/prod", "get namespaces prod", "a ClusterRole with get on namespaces"),
        ("GET /version", "read this", "a ClusterRole with this right"),
    ],
)
def test_a_forbidden_request_names_verb_resource_namespace_and_who_grants_it(request_line, right, fix):
    method, path = request_line.split()
    response = errors.ErrorResponse(403, "Forbidden", 'User "dev" cannot', path, method=method)
    sentence = failures.build_api_error(response).sentence
    assert sentence.startswith(
        f'you may not {right} (403 Forbidden: User "dev" cannot); ask an administrator of the cluster'
    )
    assert fix in sentence
    assert sentence.endswith(", or use an account that has it")
    assert "/api/" not in sentence
    assert "/apis/" not in sentence


def test_the_error_page_of_a_proxy_is_not_quoted():
    response = errors.ErrorResponse(403, "Forbidden", "<html>x</html>", "/api/v1/nodes", foreign=True)
    sentence = failures.build_api_error(response).sentence
    assert sentence.startswith("you may not list nodes (403 Forbidden); ask")
