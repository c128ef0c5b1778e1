"""`--as`, `--as-group` and `--request-timeout`: the headers at a server, and the end of a command's wait."""

import asyncio
import pathlib

import api_stub
import pytest
import shell
from aiohttp import web

from railwright.cli.__main__ import main

COMMANDS = (("check",), ("gangs",))  # one that goes on after an error, and one that ends
GIVEN = ("--as", "dev", "--as-group", "ml", "--as-group", "hpc")
IMPERSONATING = "as: ops, as-uid: u1, as-groups: [a, b], as-user-extra: {example.com/team: [x, y]}"


@pytest.fixture
async def server(tmp_path):
    """Yield a kubeconfig and the requests to its server, which refuses all of them or does not answer."""
    requests, silence = [], asyncio.Event()

    async def answer(request):
        requests.append(request)
        if silence.is_set():
            await asyncio.Event().wait()
        body = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
        return web.json_response(body, status=403)

    async with api_stub.serve(answer) as port:
        yield api_stub.kubeconfig(tmp_path, port), requests, silence


def add_to_user(path, keys):
    path.write_text(path.read_text().replace("token: s3cret", f"token: s3cret, {keys}"))


# Each with a server of its own: a command that fails may leave a request on its way
@pytest.mark.parametrize(
    ("command", "keys", "given", "user", "groups"),
    [
        *((command, "", GIVEN, ["dev"], ["ml", "hpc"]) for command in COMMANDS),
        (("check",), "", (), [], []),
        (("check",), IMPERSONATING, (), ["ops"], ["a", "b"]),
        (("check",), IMPERSONATING, GIVEN, ["dev"], ["ml", "hpc"]),  # options go before the kubeconfig
    ],
)
async def test_requests_impersonate_those_whom_options_or_kubeconfig_name(server, command, keys, given, user, groups):
    kubeconfig, requests, _ = server
    add_to_user(pathlib.Path(kubeconfig), keys)
    assert await asyncio.to_thread(main, [*command, "--kubeconfig", kubeconfig, *given]) == 2
    assert requests
    for request in requests:
        assert request.headers.getall("Impersonate-User", []) == user
        assert request.headers.getall("Impersonate-Group", []) == groups
        assert request.headers.getall("Impersonate-Uid", []) == (["u1"] if keys else [])
        assert request.headers.getall("Impersonate-Extra-example.com%2Fteam", []) == (["x", "y"] if keys else [])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_no_command_waits_longer_than_the_request_timeout(server, capsys, command):
    kubeconfig, _, silence = server
    silence.set()
    async with asyncio.timeout(shell.PATIENCE):
        given = ("--kubeconfig", kubeconfig, "--request-timeout", "200ms")
        assert await asyncio.to_thread(main, [*command, *given]) == 2
    captured = capsys.readouterr()
    assert "no answer in time" in captured.out + captured.err
