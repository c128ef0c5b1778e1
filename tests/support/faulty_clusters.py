"""Unusable clusters, each on a real socket, and kubeconfigs with mistakes.

The servers run on a thread with a loop of its own, so that a command may run in the test's.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import pathlib
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

import api_stub
import reserved_ports
import yaml
from aiohttp import web

from certs import pki

# what people must never be shown, said by whoever is in the API server's place
NOISE = "JSONDecodeError at 0x7f2c62398290 in /api/v1/nodes. Traceback (most recent call last): urllib.HTTPException"
_NOW, _DAY = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
_CORE = ("/api/v1/", "/apis/apps/v1/", "/apis/batch/v1/", "/apis/admissionregistration.k8s.io/v1/")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _page(status: int) -> Handler:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=f"<html><h1>{NOISE}</h1></html>", content_type="text/html")

    return answer


def _refusing(code: int, reason: str, message: str) -> Handler:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return api_stub.refuse(code, reason, message)

    return answer


async def _other_json(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"hello": "world", "error": NOISE})


async def _answer_uninstalled(request: web.Request) -> web.StreamResponse:
    """Return a cluster without railwright, Volcano and Multus."""
    if request.path == "/version":
        return web.json_response({"gitVersion": "v1.35.0"})
    *_, last = request.path.split("/")
    if last in {"selfsubjectaccessreviews", "subjectaccessreviews"}:
        return web.json_response({"status": {"allowed": True}})
    if not request.path.startswith(_CORE):
        return web.Response(status=404, text="404 page not found\n")
    if request.method != "GET":
        return api_stub.refuse(404, "NotFound", 'namespaces "railwright-system" not found')
    if last.startswith("railwright") or last == "volcano-scheduler-configmap":
        return api_stub.refuse(404, "NotFound", f'"{last}" not found')
    return web.json_response({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []})


async def _tenant(request: web.Request) -> web.StreamResponse:
    """Return a cluster whose account may only read the version."""
    if request.path == "/version":
        return web.json_response({"gitVersion": "v1.35.0"})
    *_, last = request.path.split("/")
    return api_stub.refuse(403, "Forbidden", f'{last} is forbidden: User "dev" cannot list resource "{last}"')


_PATH = 'forbidden: User "system:anonymous" cannot get path "/api/v1/nodes"'
ANSWERS: Mapping[str, Handler] = {
    "a web page": _page(200),
    "a page not found": _page(404),
    "a broken page": _page(500),
    "a login page": _page(401),
    "another program's JSON": _other_json,
    "an API server that is broken": _refusing(500, "InternalError", f"etcd: {NOISE}"),
    "an expired token": _refusing(401, "Unauthorized", "Unauthorized"),
    "an account without rights": _refusing(403, "Forbidden", _PATH),
    "a tenant": _tenant,
    "a cluster without railwright": _answer_uninstalled,
}


class Clusters:
    """The running servers: their ports by name."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.ports: dict[str, int] = {}
        self._authorities = {name: pki.issue_ca(name, now=_NOW, lifetime=_DAY) for name in ("ours", "theirs")}
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        self._loop.close()

    async def _run(self) -> None:
        served = {
            **ANSWERS,
            "untrusted": _answer_uninstalled,
            "wrong name": _answer_uninstalled,
            "out of date": _answer_uninstalled,
        }
        async with contextlib.AsyncExitStack() as servers:
            for name, play in {"silent": _silent, "hangs up": _hang_up, "no HTTP": _greet}.items():
                server = await asyncio.start_server(play, "127.0.0.1", 0)
                servers.callback(server.close)
                self.ports[name] = server.sockets[0].getsockname()[1]
            for name, answer in served.items():
                serving = api_stub.serve_routes(web.route("*", "/{path:.*}", answer), tls=self._tls(name))
                self.ports[name] = await servers.enter_async_context(serving)
            self.ports["refused"] = servers.enter_context(reserved_ports.reserve())
            self._ready.set()
            await self._end.wait()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def _tls(self, name: str) -> ssl.SSLContext | None:
        if name not in ("untrusted", "wrong name", "out of date"):
            return None
        authority = self._authorities["theirs" if name == "untrusted" else "ours"]
        hosts = ["kubernetes.default"] if name == "wrong name" else ["127.0.0.1"]
        begin = _NOW - 30 * _DAY if name == "out of date" else _NOW
        pair = pki.issue_certificate(
            authority, common_name="api", hosts=hosts, usages={pki.Usage.SERVER}, now=begin, lifetime=_DAY
        )
        path = self._folder / f"{name}.pem"
        path.write_bytes(pair.certificate_pem + pair.key_pem)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(path)
        return context

    def kubeconfig(self, name: str, folder: pathlib.Path) -> str:
        """Write the kubeconfig of a cluster, or one with a mistake, by its name here; return its path."""
        path = folder / "kubeconfig"
        if name in _FILES:
            _FILES[name](path)
            return str(path)
        tree = self._tree(name)
        _MISTAKES.get(name, lambda _tree: None)(tree)
        path.write_text(yaml.safe_dump(tree))
        return str(path)

    def _tree(self, name: str) -> dict:
        scheme = "https" if name in ("untrusted", "wrong name", "out of date", "plain behind https") else "http"
        port = self.ports[{"plain behind https": "a tenant", "TLS behind http": "untrusted"}.get(name, name)] if (
            name in self.ports or name in ("plain behind https", "TLS behind http")
        ) else self.ports["a tenant"]  # fmt: skip
        server = "https://nowhere.invalid:6443" if name == "unknown host" else f"{scheme}://127.0.0.1:{port}"
        cluster = {"server": server}
        if scheme == "https":
            cluster["certificate-authority-data"] = base64.b64encode(self._authorities["ours"].certificate_pem).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "prod",
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "dev"}}],
            "clusters": [{"name": "prod", "cluster": cluster}],
            "users": [{"name": "dev", "user": {"token": "s3cret"}}],
        }


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.read()
    finally:
        writer.close()


async def _hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
    writer.close()


CONNECTIONS = (
    "refused", "silent", "hangs up", "no HTTP", "unknown host", "untrusted", "wrong name", "out of date",
    "plain behind https", "TLS behind http",
)  # fmt: skip

_FILES: Mapping[str, Callable[[pathlib.Path], object]] = {
    "no file": lambda _path: None,
    "a directory": lambda path: path.mkdir(),
    "broken YAML": lambda path: path.write_text("clusters: [\ncontexts: {{\n"),
    "a list": lambda path: path.write_text("- a\n- b\n"),
}


def _exec(*command: str) -> dict:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command[0], "args": [*command[1:]]}}


def _user(user: dict) -> Callable[[dict], object]:
    return lambda tree: tree["users"][0].update(user=user)


def _cluster(**more: str) -> Callable[[dict], object]:
    return lambda tree: tree["clusters"][0]["cluster"].update(more)


_NO_PEM = base64.b64encode(b"no certificate").decode()
_MISTAKES: Mapping[str, Callable[[dict], object]] = {
    "a context that is missing": lambda tree: tree.update({"current-context": "staging"}),
    "a cluster that is missing": lambda tree: tree.update(clusters=[]),
    "no server": lambda tree: tree["clusters"][0]["cluster"].pop("server"),
    "a server that is no address": _cluster(server="not an address"),
    "an address of another kind": _cluster(server="ftp://127.0.0.1:1"),
    "a CA that is missing": _cluster(**{"certificate-authority": "nowhere.crt", "server": "https://127.0.0.1:1"}),
    "a CA that is no certificate": _cluster(**{"certificate-authority-data": _NO_PEM, "server": "https://127.0.0.1:1"}),
    "a plugin that is missing": _user(_exec("no-such-credential-plugin", "get-token")),
    "a plugin that fails": _user(_exec(sys.executable, "-c", "raise SystemExit('log in again')")),
    "a plugin that crashes": _user(_exec(sys.executable, "-c", "1 / 0")),
    "a proxy that is no address": _cluster(**{"proxy-url": "::::"}),
    "a proxy that is a number": lambda tree: tree["clusters"][0]["cluster"].update({"proxy-url": 8080}),
    "a server with a password": _cluster(server="http://dev:s3cret@127.0.0.1:1"),
    "an auth-provider": _user({"auth-provider": {"name": "gcp", "config": {}}}),
}
KUBECONFIGS = (*_FILES, *_MISTAKES)
