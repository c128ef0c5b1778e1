"""Whatever is sent to whatever path: a reason comes back, and the server answers on."""

import contextlib
import io
import json
import pathlib

import aiohttp
import pytest
import pytest_asyncio
from malformed import BODIES, ENDS, EXTENDER, WEBHOOK

from railwright.cli.demo import scenario

WIRE = pathlib.Path(__file__).parents[1] / "data" / "wire"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(tmp_path_factory):
    async with scenario.start(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def narrow(tmp_path_factory):
    """Yield the same servers with a limit that a test can pass on every path."""
    async with scenario.start(tmp_path_factory.mktemp("narrow"), ["--max-body", "4096"]) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def post(stage):
    async with sender(stage) as send:
        yield send


@contextlib.asynccontextmanager
async def sender(stage):
    async with aiohttp.ClientSession() as session:

        async def send(path: str, body: bytes, method: str = "POST", **headers: str):
            own = path.startswith(("/mutate", "/validate"))
            base = f"https://{stage.webhook.address}" if own else f"http://{stage.extender.address}"
            given = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
            url = base + path
            async with session.request(method, url, data=io.BytesIO(body), headers=given, ssl=stage.trust) as response:
                return response.status, await response.read(), response.headers

        yield send


def reason(body: bytes) -> str:
    return json.loads(body)["error"]["reason"]


@pytest.mark.parametrize("broken", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("path", EXTENDER)  # of the webhook's it is fault 32 of tests/faults
async def test_a_malformed_body_gets_400_with_a_reason(post, path, broken):
    status, body, _ = await post(path, broken)
    assert status == 400, body
    assert reason(body)


@pytest.mark.parametrize("broken", ["empty", "not JSON", "a list", "too deep"])
async def test_session_close_requires_json(post, broken):
    assert (await post(ENDS, BODIES[broken]))[0] == 400
    assert (await post(ENDS, b"{}"))[0] == 200


@pytest.mark.parametrize("path", [*WEBHOOK, *EXTENDER, ENDS])
async def test_a_body_over_the_limit_gets_413(narrow, path):
    async with sender(narrow) as send:
        for body in (b"{" + b" " * 4096 + b"}", b'"' + b"x" * (1 << 20) + b'"'):
            status, answer, _ = await send(path, body)
            assert status == 413, path
            assert "4096" in reason(answer)
        assert (await send(path, b"{"))[0] == 400


@pytest.mark.parametrize("path", WEBHOOK)
async def test_the_webhooks_own_limit_is_seven_mebibytes(post, path):
    status, body, _ = await post(path, b'"' + b"x" * (7 * 1024 * 1024) + b'"')
    assert status == 413
    assert "7340032" in reason(body)


async def test_explanations_on_loopback_need_no_api_server(post):
    assert (await post("/volcano/prioritize", (WIRE / "volcano-prioritize.json").read_bytes()))[0] == 200
    status, body, _ = await post("/explain/prod/rdma-test-master-0", b"", method="GET")
    assert status in (200, 404)
    status, body, _ = await post("/explain/prod/never-seen", b"", method="GET")
    assert status == 404
    assert "prod/never-seen" in reason(body)
