"""Access to explanations, by the answers of a stub API server."""

import asyncio
import json

import extending
import pytest
from aiohttp import test_utils

from extender import access
from railwright.cluster import errors

USER = {"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a"]}}
KNOWN = {"status": {"authenticated": True, "user": USER}}
ALLOWED, REFUSED = {"status": {"allowed": True}}, {"status": {"allowed": False, "denied": True}}
FORBIDDEN = errors.ApiError(403, "Forbidden", "no", "/x")


class ApiServer:
    def __init__(self, *answers) -> None:
        self.answers, self.asked = list(answers), []

    async def post(self, path: str, body: dict) -> bytes:
        self.asked.append((path.rpartition("/")[2], body["spec"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


async def check_access(server, authorization="Bearer t0ken"):
    return await access.check_pod_access(authorization, "prod", "10.0.0.1", server.post)


async def test_a_user_who_may_get_pods_in_the_namespace_may_read_explanations():
    server = ApiServer(KNOWN, ALLOWED)
    assert await check_access(server) is None
    (review, token), (access_review, spec) = server.asked
    assert (review, token) == ("tokenreviews", {"token": "t0ken"})
    assert access_review == "subjectaccessreviews"
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == tuple(USER.values())
    assert spec["resourceAttributes"] == {"namespace": "prod", "verb": "get", "version": "v1", "resource": "pods"}


@pytest.mark.parametrize("header", ["Authorization", "X-Railwright-Authorization"])
async def test_a_token_passed_on_by_the_api_servers_proxy_is_accepted(header):
    """The proxy does not pass the standard header on."""
    server = ApiServer(KNOWN, ALLOWED)
    site = extending.Site([])
    async with test_utils.TestClient(test_utils.TestServer(site.verbs.build_application(server.post))) as client:
        answer = await client.get("/explain/prod/p", headers={header: "Bearer t0ken"})
        assert answer.status == 404
        assert "no opted-in pod prod/p is known" in await answer.text()
    assert server.asked[0] == ("tokenreviews", {"token": "t0ken"})


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer  ", "Basic dTpw", "t0ken"])
async def test_a_request_without_a_bearer_token_gets_401_without_a_review(authorization):
    server = ApiServer()
    assert (await check_access(server, authorization))[0] == 401
    assert server.asked == []


@pytest.mark.parametrize("answer", [{"status": {}}, {}, {"status": {"authenticated": False, "error": "expired"}}])
async def test_an_unknown_token_gets_401_and_the_command_for_a_new_one(answer):
    status, reason = await check_access(ApiServer(answer))
    assert status == 401
    assert "get one with `kubectl create token SERVICEACCOUNT`" in reason


@pytest.mark.parametrize("answer", [REFUSED, {"status": {}}, {}])
async def test_a_user_without_the_permission_gets_403_with_the_user_name(answer):
    assert await check_access(ApiServer(KNOWN, answer)) == (403, "ann may not get pods in namespace prod")


@pytest.mark.parametrize(
    "failure",
    [errors.UnreachableError("refused"), FORBIDDEN, b"<html>", b'{"status": 1}'],
)
@pytest.mark.parametrize("before", [[], [KNOWN]], ids=["token", "access"])
async def test_a_failed_token_or_access_review_gets_503_and_names_the_permission_that_the_extender_lacks(
    failure, before
):
    status, reason = await check_access(ApiServer(*before, failure))
    assert status == 503
    assert "t0ken" not in reason
    assert ("create tokenreviews and subjectaccessreviews" in reason) == (failure is FORBIDDEN)


@pytest.mark.parametrize(
    ("peer", "status"), [("127.0.0.1", None), ("::1", None), ("10.0.0.1", 403), ("", 403), ("host", 403)]
)
async def test_without_an_api_server_only_loopback_callers_may_read_explanations(peer, status):
    denial = await access.check_pod_access("", "prod", peer, None)
    assert (denial and denial[0]) == status


async def test_the_dashboard_requires_the_right_to_get_its_path():
    server = ApiServer(KNOWN, ALLOWED)
    assert await access.check_path_access("Bearer t0ken", "/dashboard", "10.0.0.1", server.post) is None
    assert server.asked[1][1]["nonResourceAttributes"] == {"path": "/dashboard", "verb": "get"}
    assert "resourceAttributes" not in server.asked[1][1]
    refused = await access.check_path_access("Bearer t0ken", "/dashboard", "10.0.0.1", ApiServer(KNOWN, REFUSED).post)
    assert refused[0] == 403
    assert "ann may not get /dashboard" in refused[1]


class SlowApiServer:
    """Accepts no token, and answers once `go_on` is set. Counts concurrent reviews."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.go_on = asyncio.Event()

    async def post(self, _path: str, _body: object) -> bytes:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go_on.wait()
        self.now -= 1
        return b"{}"


async def turn():
    """Run the event loop until all tasks wait for the API server."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_at_most_four_token_reviews_run_at_a_time():
    server = SlowApiServer()
    post = access.limit_reviews(server.post)
    asked = [
        asyncio.ensure_future(
            access.check_pod_access(f"Bearer {number}", "prod", "10.0.0.1", post)
            if number % 2
            else access.check_path_access(f"Bearer {number}", "/dashboard", "10.0.0.1", post)
        )
        for number in range(300)
    ]
    await turn()
    assert server.now == 4
    server.go_on.set()
    assert {(await task)[0] for task in asked} == {401}
    assert server.most == 4


async def test_a_disconnected_caller_ends_its_token_review():
    server = SlowApiServer()
    post = access.limit_reviews(server.post)
    for _ in range(3):
        asked = [asyncio.ensure_future(post("/x", b"")) for _ in range(104)]
        await turn()
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
    server.go_on.set()
    assert await post("/x", b"") == b"{}"
