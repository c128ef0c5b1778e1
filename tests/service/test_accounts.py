"""Accounts of kubeconfigs and pods: the headers, TLS and proxy with which requests are sent."""

import asyncio
import base64
import contextlib
import datetime as dt
import json
import os
import ssl
import time

import pytest

from certs import pki
from railwright.cluster import credentials, errors

PLUGIN = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": STATUS}'
"""
NOW, DAY = dt.datetime.now(dt.UTC), dt.timedelta(days=1)


def build_token(expires):
    body = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def build_exec(command, **more):
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, **more}}


def build_provider(expires):
    return {"auth-provider": {"name": "oidc", "config": {"id-token": build_token(expires)}}}


VALID, EXPIRED = int(time.time()) + 3600, int(time.time()) - 3600
USERS = {
    "token": {"token": "s3cret"},
    "file": {"tokenFile": "token"},
    "password": {"username": "admin", "password": "s3cret"},
    "plugin": build_exec("./plugin"),
    "environment": build_exec("./echo", env=[{"name": "TOKEN", "value": "of-env"}], args=["-"]),
    "certificate": {"client-certificate": "client.pem", "client-key": "client.pem"},
    "provider": build_provider(VALID),
    "nobody": {},
}
HEADERS = {
    "token": {"authorization": "Bearer s3cret"},
    "file": {"authorization": "Bearer of-a-file"},
    "password": {"authorization": "Basic YWRtaW46czNjcmV0"},
    "plugin": {"authorization": "Bearer of-a-plugin"},
    "environment": {"authorization": "Bearer of-env"},
    "certificate": {},
    "provider": {"authorization": f"Bearer {build_token(VALID)}"},
    "nobody": {},
}


@pytest.fixture(scope="module")
def authority():
    return pki.issue_ca("test", now=NOW, lifetime=DAY)


@pytest.fixture
def folder(tmp_path, authority):
    """Return a folder with what users name, and `config` with one context for each user."""
    leaf = pki.issue_certificate(authority, common_name="me", hosts=[], usages={"client"}, now=NOW, lifetime=DAY)
    (tmp_path / "ca.crt").write_bytes(b"# \xc3\xa9 comment\n" + authority.certificate_pem)
    (tmp_path / "client.pem").write_bytes(leaf.certificate_pem + leaf.key_pem)
    (tmp_path / "token").write_text("of-a-file\n")
    certificate = json.dumps(
        {"clientCertificateData": leaf.certificate_pem.decode(), "clientKeyData": leaf.key_pem.decode()}
    )
    scripts = {"plugin": '{"token": "of-a-plugin"}', "echo": """{"token": "'$TOKEN'"}""", "issuer": certificate}
    for name, status in scripts.items():
        (tmp_path / name).write_text(PLUGIN.replace("STATUS", status.replace("\\n", "\\\\n")))
        (tmp_path / name).chmod(0o755)
    return tmp_path


def write(folder, users, **cluster):
    tree = {
        "current-context": next(iter(users)),
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/", **cluster}}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in users],
    }
    (folder / "config").write_text(json.dumps(tree))
    return str(folder / "config")


@pytest.mark.parametrize("user", USERS)
async def test_each_way_to_authenticate_gives_its_header(folder, user):
    account = await credentials.read(write(folder, USERS), user)
    assert await account.headers() == HEADERS[user]


@pytest.mark.parametrize("user", [USERS["certificate"], build_exec("./issuer")], ids=["files", "plugin"])
async def test_a_client_certificate_is_loaded_for_tls(folder, user, monkeypatch):
    loaded = []
    load = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext, "load_cert_chain", lambda self, *given, **more: loaded.append(load(self, *given, **more))
    )
    account = await credentials.read(write(folder, {"u": user}))
    assert await account.headers() == {}
    assert len(loaded) == 1


async def test_the_cluster_decides_on_address_ca_server_name_and_proxy(folder):
    more = {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    account = await credentials.read(write(folder, {"u": {}}, **more))
    assert (account.host, account.server_name, account.proxy) == (
        "https://api.example:6443",
        "kubernetes",
        "http://proxy:3128",
    )
    assert account.tls.cert_store_stats()["x509"] == 1
    assert account.tls.verify_mode == ssl.CERT_REQUIRED
    unchecked = await credentials.read(write(folder, {"u": {}}, **{"insecure-skip-tls-verify": True}))
    assert (unchecked.tls.verify_mode, unchecked.tls.check_hostname) == (ssl.CERT_NONE, False)


async def test_a_token_file_is_read_for_every_request(folder):
    account = await credentials.read(write(folder, {"u": USERS["file"]}))
    (folder / "token").write_text("rotated\n")
    assert await account.headers() == {"authorization": "Bearer rotated"}
    (folder / "token").unlink()
    with pytest.raises(errors.ConfigurationError, match="does not exist"):
        await account.headers()


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        (build_provider(EXPIRED), "ID token of auth-provider oidc of user u has expired; let kubectl renew it"),
        (build_exec("./plugin") | {"as-user-extra": ["a"]}, "cannot be used"),
        ({"exec": {"command": "./plugin"}}, "exec of user u has no `apiVersion:`"),
        ({"tokenFile": "empty"}, "token file empty of user u is empty"),
    ],
)
async def test_a_user_that_cannot_authenticate_is_an_error(folder, user, cause):
    (folder / "empty").write_text("\n")
    with pytest.raises(errors.ConfigurationError, match=cause) as raised:
        await credentials.read(write(folder, {"u": user}))
    assert raised.value.sentence.startswith(f"kubeconfig {folder / 'config'}: ")


async def test_a_plugin_that_does_not_end_is_killed(folder, monkeypatch):
    (folder / "plugin").write_text(f"#!/bin/sh\necho $$ > {folder}/new\nmv {folder}/new {folder}/pid\nexec sleep 600\n")
    for seconds in (0.5, 5.0, 50.0):  # a busy machine may not have started it earlier
        monkeypatch.setattr(credentials, "READ_SECONDS", seconds)
        with pytest.raises(errors.ConfigurationError, match="its credential plugin does not end"):
            await credentials.read(write(folder, {"u": USERS["plugin"]}))
        if (folder / "pid").exists():
            break
    pid = int((folder / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):
        while os.kill(pid, 0) is None:  # noqa: ASYNC110 - until it is gone
            await asyncio.sleep(0.01)


async def test_cancelling_an_ended_plugin_is_no_error(folder, monkeypatch):
    async def end_and_cancel(process):
        await process.wait()
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio.subprocess.Process, "communicate", end_and_cancel)
    with pytest.raises(asyncio.CancelledError):
        await credentials.read(write(folder, {"u": USERS["plugin"]}))


async def test_a_pod_uses_its_service_account(folder, monkeypatch):
    monkeypatch.setattr(credentials, "POD_FILES", folder)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.ConfigurationError, match="there is no service account of a pod"):
        await credentials.read(None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    account = await credentials.read(None)
    assert (account.host, await account.headers()) == ("https://[fd00::1]:443", HEADERS["file"])
    (folder / "token").write_text("rotated")
    assert await account.headers() == {"authorization": "Bearer rotated"}
