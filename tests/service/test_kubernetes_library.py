"""Accounts are read without kubernetes_asyncio's model classes, and are the same as with them.

Every case runs in a Python of its own: what is imported is the point.
"""

import datetime as dt
import json
import os
import pathlib
import subprocess
import sys

import pytest

from certs import issue

ROOT = pathlib.Path(__file__).parents[2]
PLUGIN = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "of-a-plugin"}}'
"""
USERS = {
    "token": {"token": "s3cret"},
    "file": {"tokenFile": "token"},
    "password": {"username": "admin", "password": "s3cret"},
    "plugin": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"}},
    "certificate": {"client-certificate": "client.pem", "client-key": "client.pem"},
    "nobody": {},
}
# Reads every account, the pod's own last, and prints them beside what was imported for them.
READ = """
import asyncio, json, os, resource, sys
if sys.argv[2] == "plain":
    import kubernetes_asyncio
before = len(sys.modules)
from railwright.cluster import credentials
folder, contexts = sys.argv[1], sys.argv[3:]

async def read():
    accounts = {}
    for context in contexts:
        accounts[context] = await credentials.read(f"{folder}/kubeconfig", context)
    from kubernetes_asyncio.config import incluster_config
    incluster_config.SERVICE_TOKEN_FILENAME = f"{folder}/token"
    incluster_config.SERVICE_CERT_FILENAME = f"{folder}/ca.pem"
    os.environ.update(KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443")
    accounts["pod"] = await credentials.read(None)
    return {name: {"headers": await each.headers(), "host": each.host, "server": each.server_name, "proxy": each.proxy,
                   "authorities": each.tls.cert_store_stats(), "mode": each.tls.verify_mode} for name, each in
            accounts.items()}

accounts = asyncio.run(read())
modules = [name for name in sys.modules if name.split(".")[0] == "kubernetes_asyncio"]
print(json.dumps({"accounts": accounts, "modules": len(modules)}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a kubeconfig with one context for every way to prove who one is."""
    made = tmp_path_factory.mktemp("accounts")
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    authority = issue.issue_ca("test", now=now, lifetime=day)
    leaf = issue.issue_certificate(authority, common_name="me", hosts=[], usages={"client"}, now=now, lifetime=day)
    (made / "ca.pem").write_bytes(authority.certificate_pem)
    (made / "client.pem").write_bytes(leaf.certificate_pem + leaf.key_pem)
    (made / "token").write_text("of-a-file\n")
    (made / "plugin").write_text(PLUGIN)
    (made / "plugin").chmod(0o755)
    users = {name: dict(user) for name, user in USERS.items()}
    users["plugin"]["exec"] = users["plugin"]["exec"] | {"command": str(made / "plugin")}
    cluster = {
        "server": "https://api.example:6443",
        "certificate-authority": "ca.pem",
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy.example:3128",
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "token",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in users],
    }
    (made / "kubeconfig").write_text(json.dumps(config))
    return made


def run(code, *arguments, path=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_kind_of_account_is_the_same_as_with_the_whole_library_at_a_tenth_of_its_modules(folder):
    light, whole = (run(READ, folder, how, *USERS) for how in ("light", "plain"))
    assert light["accounts"] == whole["accounts"]
    headers = {name: account["headers"] for name, account in light["accounts"].items()}
    assert headers == {
        "token": {"authorization": "Bearer s3cret"},
        "file": {"authorization": "Bearer of-a-file"},
        "password": {"authorization": "Basic YWRtaW46czNjcmV0"},
        "plugin": {"authorization": "Bearer of-a-plugin"},
        "certificate": {},
        "nobody": {},
        "pod": {"authorization": "Bearer of-a-file"},
    }
    assert light["accounts"]["plugin"]["server"] == "kubernetes"
    assert light["modules"] < 30, (
        "kubernetes_asyncio is built otherwise: look at railwright/cluster/kubernetes_library.py"
    )
    assert whole["modules"] > 700


def test_a_release_that_is_built_otherwise_is_imported_whole(tmp_path):
    """`config` takes a name from `client` that railwright/cluster/kubernetes_library.py does not know."""
    library = tmp_path / "kubernetes_asyncio"
    for name, text in {
        "__init__.py": "from kubernetes_asyncio import client, config\nwhole = True\n",
        "client/__init__.py": "from kubernetes_asyncio.client.configuration import Configuration\nNewName = 1\n",
        "client/configuration.py": "class Configuration: ...\n",
        "client/models/__init__.py": "",
        "config/__init__.py": "from kubernetes_asyncio.client import NewName\n",
    }.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text)
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
from railwright.cluster import kubernetes_library
kubernetes_library.import_config()
from kubernetes_asyncio import config
import kubernetes_asyncio
print(json.dumps([kubernetes_asyncio.whole, kubernetes_asyncio.__file__, config.NewName]))
"""
    assert run(code, tmp_path) == [True, str(library / "__init__.py"), 1]
