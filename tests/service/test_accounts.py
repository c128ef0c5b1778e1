"""Clients of the API server on real sockets: accounts, headers, TLS, proxies, and tokens that expire."""

import asyncio
import contextlib
import datetime as dt
import json
import ssl

import api_stub
import pytest
import reserved_ports
from aiohttp import web
from bare_certificates import key_pem, make, pem
from cryptography import x509
from kubernetes_asyncio.config import incluster_config

from certs import pki
from railwright.cli.__main__ import main
from railwright.cluster import client as clients
from railwright.cluster import errors, kubeconfigs

API = "client.authentication.k8s.io/v1"
PLUGIN = f"""#!/bin/sh
echo run >> {{folder}}/runs
printf '{{{{"apiVersion": "{API}", "kind": "ExecCredential", "status": %s}}}}' "$(cat {{folder}}/status)"
"""
NOW, DAY = dt.datetime.now(dt.UTC), dt.timedelta(days=1)


class ApiServer:
    """Records requests, and refuses all tokens except the valid ones."""

    def __init__(self) -> None:
        self.headers: list = []
        self.paths: list[str] = []
        self.refused: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        self.paths.append(request.path)
        if request.headers.get("Authorization") in self.refused:
            return api_stub.refuse(401, "Unauthorized")
        return web.json_response({"gitVersion": "v1"})


@pytest.fixture
def server():
    return ApiServer()


@pytest.fixture(scope="module")
def authority():
    return pki.issue_ca("test", now=NOW, lifetime=DAY)


@pytest.fixture
def folder(tmp_path, authority):
    """Return a folder with the files that users name."""
    write_client(tmp_path, authority, "me")
    (tmp_path / "ca.crt").write_bytes(b"# \xc3\xa9 comment\n" + authority.certificate_pem)
    (tmp_path / "token").write_text("of-a-file\n")
    (tmp_path / "plugin").write_text(PLUGIN.format(folder=tmp_path))
    (tmp_path / "plugin").chmod(0o755)
    return tmp_path


def write_client(folder, authority, name):
    """Write a client's certificate with its key, as a tool that renews it does."""
    leaf = pki.issue_certificate(authority, common_name=name, hosts=[], usages={"client"}, now=NOW, lifetime=DAY)
    (folder / "client.pem").write_bytes(leaf.certificate_pem + leaf.key_pem)


def build_exec(folder, status):
    """Return a user with a credential plugin that returns this status."""
    (folder / "status").write_text(json.dumps(status))
    return {"exec": {"apiVersion": API, "command": str(folder / "plugin"), "args": ["get-token"]}}


def write(folder, user, server="https://api.example:6443/", **cluster):
    tree = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "config").write_text(json.dumps(tree))
    return str(folder / "config")


def write_trusting(folder, user, port, **cluster):
    """Write a kubeconfig that trusts ca.crt."""
    return write(folder, user, f"https://127.0.0.1:{port}", **{"certificate-authority": "ca.crt", **cluster})


def serve_tls(server, folder, authority, host="127.0.0.1", port=0):
    """Serve over TLS with a certificate of this authority for this host."""
    leaf = pki.issue_certificate(authority, common_name="api", hosts=[host], usages={"server"}, now=NOW, lifetime=DAY)
    return serve_pem(server, folder, leaf.certificate_pem + leaf.key_pem, port)


def serve_pem(server, folder, certificates, port=0):
    """Serve over TLS with these certificates and this key, to clients with a certificate of ca.crt or without."""
    (folder / "api.pem").write_bytes(certificates)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(folder / "api.pem")

    async def answer(request: web.Request) -> web.Response:
        server.certificate = request.transport.get_extra_info("peercert")
        return await server.answer(request)

    return api_stub.serve_routes(web.get("/{path:.*}", answer), port=port, tls=context)


@contextlib.asynccontextmanager
async def connected(kubeconfig, **options):
    made = await clients.connect(kubeconfig, **options)
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def serving(server, folder, account, **options):
    """Yield a client with this user's account over plain HTTP."""
    async with (
        api_stub.serve(server.answer) as port,
        connected(write(folder, account, f"http://127.0.0.1:{port}/"), **options) as client,
    ):
        yield client


async def test_requests_have_the_token_of_the_token_file_and_the_user_agent_railwright(server, folder):
    async with serving(server, folder, {"tokenFile": "token"}) as client:
        await client.get("/version")
        assert await client.get_token() == "of-a-file"
    (headers,) = server.headers
    assert (headers["Authorization"], headers["User-Agent"]) == ("Bearer of-a-file", "railwright")
    assert headers["Accept"] == "application/json"


CERTIFIED = {"client-certificate": "client.pem", "client-key": "client.pem"}


async def test_ca_and_server_name_are_read_from_the_cluster_of_the_kubeconfig(server, folder, authority):
    async with serve_tls(server, folder, authority, "kubernetes") as port:
        async with connected(write_trusting(folder, {"token": "t"}, port)) as client:
            with pytest.raises(errors.UnreachableError, match=r"(IP address|Hostname) mismatch"):
                await client.get("/version")
        async with connected(
            write_trusting(folder, {"token": "t"}, port, **{"tls-server-name": "kubernetes"})
        ) as client:
            assert await client.get("/version")
        address = f"https://127.0.0.1:{port}"
        async with connected(write(folder, {"token": "t"}, address, **{"insecure-skip-tls-verify": True})) as client:
            assert await client.get("/version")


async def test_a_new_ca_of_the_api_server_is_trusted_once_it_is_in_the_file(server, folder, authority):
    """Kubelet renews ca.crt of every pod; a server that never read it again would need a restart."""
    ca, new = folder / "ca.crt", pki.issue_ca("new", now=NOW, lifetime=DAY)
    with reserved_ports.reserve() as port:
        async with connected(write_trusting(folder, {"token": "t"}, port)) as client:
            async with serve_tls(server, folder, authority, port=port):
                assert await client.get("/version")
            async with serve_tls(server, folder, new, port=port):
                for _ in range(2):
                    with pytest.raises(errors.UnreachableError, match="certificate"):
                        await client.get("/version")
                ca.write_bytes(ca.read_bytes() + new.certificate_pem)
                with contextlib.suppress(errors.UnreachableError):
                    await client.get("/version")
                assert await client.get("/version")


AUTHORITY = make("kubernetes", authority=True)
BETWEEN = make("between", AUTHORITY, authority=True)
NO_AUTHORITY = make("a workload", AUTHORITY)  # a certificate of the authority, which may issue none
HONEST = {
    "of the root": (make("api", AUTHORITY), ()),
    "of an authority between": (make("api", BETWEEN), (BETWEEN[0],)),
}
DISHONEST = {
    "of another authority with its name": (make("api", make("kubernetes", authority=True)), ()),
    "of itself": (make("kubernetes"), ()),
    "for another host": (make("api", AUTHORITY, host="127.0.0.2"), ()),
    "expired": (make("api", AUTHORITY, until=NOW - DAY), ()),
    "for clients only": (make("api", AUTHORITY, usage=x509.OID_CLIENT_AUTH), ()),
    "issued by a certificate that is no authority": (make("api", NO_AUTHORITY), (NO_AUTHORITY[0],)),
}


@pytest.mark.parametrize("case", [*HONEST, *DISHONEST])
async def test_a_ca_without_key_identifiers_is_trusted_as_by_kubectl(server, folder, case):
    """EKS has such certificates. Python 3.13 refuses them by default: 'Missing Authority Key Identifier'."""
    (leaf, key), chain = (HONEST | DISHONEST)[case]
    (folder / "ca.crt").write_bytes(pem(AUTHORITY[0]))
    async with (
        serve_pem(server, folder, pem(leaf, *chain) + key_pem(key)) as port,
        connected(write_trusting(folder, {"token": "t"}, port)) as client,
    ):
        if case in HONEST:
            assert await client.get("/version") == b'{"gitVersion": "v1"}'
        else:
            with pytest.raises(errors.UnreachableError, match="its certificate is not trusted"):
                await client.get("/version")


async def test_the_proxy_is_read_from_the_kubeconfig_and_never_from_the_environment(server, folder, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(server, folder, {"token": "t"}) as client:
        await client.get("/version")
    async with api_stub.serve(server.answer) as port:
        config = write(folder, {"token": "t"}, "http://nowhere.invalid", **{"proxy-url": f"http://127.0.0.1:{port}"})
        async with connected(config) as client:
            await client.get("/version")
    assert server.headers[1]["Host"] == "nowhere.invalid"


GIVEN = ("--as", "dev", "--as-group", "ml", "--as-group", "hpc")
IMPERSONATING = {
    "as": "ops",
    "as-uid": "u1",
    "as-groups": ["a", "b"],
    "as-user-extra": {"example.com/team": ["x", "y"]},
}


@pytest.mark.parametrize(
    ("command", "keys", "given", "user", "groups"),
    [
        ("gangs", {}, GIVEN, ["dev"], ["ml", "hpc"]),  # ends after an error, and check goes on
        ("check", {}, GIVEN, ["dev"], ["ml", "hpc"]),
        ("check", {}, (), [], []),
        ("check", IMPERSONATING, (), ["ops"], ["a", "b"]),
        ("check", IMPERSONATING, GIVEN, ["dev"], ["ml", "hpc"]),  # options go before the kubeconfig
    ],
)
async def test_requests_impersonate_the_user_of_the_options_or_the_kubeconfig(
    server, folder, command, keys, given, user, groups
):
    server.refused.add("Bearer t")
    async with api_stub.serve(server.answer) as port:
        config = write(folder, {"token": "t", **keys}, f"http://127.0.0.1:{port}")
        assert await asyncio.to_thread(main, [command, "--kubeconfig", config, *given]) == 2
    assert server.headers
    for headers in server.headers:
        assert headers.getall("Impersonate-User", []) == user
        assert headers.getall("Impersonate-Group", []) == groups
        assert headers.getall("Impersonate-Uid", []) == (["u1"] if keys else [])
        assert headers.getall("Impersonate-Extra-example.com%2Fteam", []) == (["x", "y"] if keys else [])


# --- tokens that expire --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_relative", [False, True])
async def test_a_refused_request_is_repeated_with_a_new_token_of_the_credential_plugin(server, folder, is_relative):
    """The relative path of a plugin begins at the kubeconfig, as for kubectl."""
    user = build_exec(folder, {"token": "first"})
    if is_relative:
        user["exec"]["command"] = "./plugin"
    async with serving(server, folder, user) as client:
        await client.get("/version")
        server.refused.add("Bearer first")
        (folder / "status").write_text(json.dumps({"token": "second"}))
        assert await client.get("/version")
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first"] * 2 + ["Bearer second"]
    assert (folder / "runs").read_text() == "run\n" * 2


async def test_after_a_401_the_credentials_are_read_again(server, folder):
    server.refused.add("Bearer of-a-file")
    async with serving(server, folder, {"tokenFile": "token"}) as client:
        with pytest.raises(errors.ApiError, match="401"):
            await client.get("/version")
        (folder / "token").write_text("rotated\n")
        assert await client.get("/version")
        (folder / "config").unlink()
        server.refused.add("Bearer rotated")
        with pytest.raises(errors.ConfigurationError):
            await client.get("/version")


async def test_after_a_401_a_new_client_certificate_is_presented(server, folder, authority):
    """Open connections would still have the old one."""
    async with (
        serve_tls(server, folder, authority) as port,
        connected(write_trusting(folder, CERTIFIED, port)) as client,
    ):
        server.refused.add(None)
        with pytest.raises(errors.ApiError, match="401"):
            await client.get("/version")
        server.refused.clear()
        write_client(folder, authority, "new")
        await client.get("/version")
    assert dict(part[0] for part in server.certificate["subject"])["commonName"] == "new"


async def test_a_pod_uses_its_service_account_and_reads_its_token_again(server, folder, authority, monkeypatch):
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(folder / "ca.crt"))
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", dt.timedelta())
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.ConfigurationError, match="of a pod to use: Service host/port is not set") as raised:
        await clients.connect(None)
    assert raised.value.sentence.endswith("; give --kubeconfig FILE outside a cluster")
    (folder / "token").write_text("first")
    async with serve_tls(server, folder, authority) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        async with connected(None) as client:
            await client.get("/version")
            for text in ("second", ""):
                (folder / "token").write_text(text)
                await client.get("/version")
            (folder / "token").unlink()
            await client.get("/version")
            server.refused.add("Bearer second")
            with pytest.raises(errors.ConfigurationError, match="Service token file does not exist"):
                await client.get("/version")
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer first", *["Bearer second"] * 4]


EXPIRED_LOGIN = {
    "auth-provider": {"name": "oidc", "config": {"id-token": "e30.eyJleHAiOjF9.c2ln", "refresh-token": "once"}}
}


# --- what cannot be used -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        (EXPIRED_LOGIN, "oidc: No valid id-token"),  # the refresh token is kubectl's
        ({"token": "t", "as-user-extra": ["a"]}, "is not a kubeconfig that can be used"),
        ({"exec": {"command": "plugin"}}, "exec: malformed request. missing key 'apiVersion'"),
        ({"tokenFile": "nowhere"}, "nowhere: no such file or directory"),
    ],
)
async def test_credentials_that_cannot_be_used_are_an_error_with_the_kubeconfig_and_the_cause(folder, user, cause):
    config = write(folder, user)
    with pytest.raises(errors.ConfigurationError, match=cause) as raised:
        await clients.connect(config)
    assert raised.value.sentence.startswith(f"kubeconfig {config}: ")
    assert raised.value.sentence.endswith("or fetch it again")


async def test_the_error_about_a_kubeconfig_does_not_contain_its_token(folder):
    """The library names an entry by its whole content."""
    user = {"token": "s3cret", "auth-provider": {"name": "oidc", "config": {"id-token": None}}}
    with pytest.raises(errors.ConfigurationError, match="Expected key id-token in") as raised:
        await clients.connect(write(folder, user))
    assert "s3cret" not in raised.value.sentence + str(raised.value)


async def test_a_credential_plugin_that_does_not_end_in_time_is_an_error(folder, monkeypatch):
    (folder / "plugin").write_text("#!/bin/sh\nexec sleep 5\n")
    monkeypatch.setattr(kubeconfigs, "READ_SECONDS", 0.2)
    with pytest.raises(errors.ConfigurationError, match="its credential plugin does not end within 0 s"):
        await clients.connect(write(folder, build_exec(folder, {})))


@pytest.mark.parametrize("user", [{"token": "t"}, CERTIFIED], ids=["token", "certificate"])
async def test_a_watch_continues_after_the_credentials_are_read_again(server, folder, authority, user):
    """After a 401, which other requests may get."""
    more, refused = asyncio.Event(), []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/refused") and request.path not in refused:
            refused.append(request.path)
            return api_stub.refuse(401, "Unauthorized")
        if request.path != "/watch":
            return web.json_response({})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await more.wait()
        await response.write(b"two\n")
        await asyncio.Event().wait()
        return response

    server.answer = answer
    async with (
        serve_tls(server, folder, authority) as port,
        connected(write_trusting(folder, user, port)) as client,
    ):
        lines = client.stream_lines("/watch", {}, 60.0)
        assert await anext(lines) == b"one\n"
        write_client(folder, authority, "new")
        assert await client.get("/refused") == b"{}"
        more.set()
        assert await asyncio.wait_for(anext(lines), 30) == b"two\n"
