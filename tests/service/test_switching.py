"""`railwright disable` and `enable` against an API server: the order, the copy, repeated and interrupted runs."""

import asyncio
import json
import pathlib

import api_stub
import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from railwright.cli import __main__ as railwright

BASE = pathlib.Path(__file__).parents[2] / "manifests" / "base"
API = "/apis/admissionregistration.k8s.io/v1"
WEBHOOK = f"{API}/mutatingwebhookconfigurations/railwright"
BINDINGS = f"{API}/validatingadmissionpolicybindings"
COPIES = "/api/v1/namespaces/railwright-system/configmaps"
COPY = f"{COPIES}/railwright-disabled"


class Cluster:
    """Stores objects by path, and the writes in their order; `refused` is the path whose writes fail."""

    def __init__(self):
        self.objects, self.writes, self.refused, self.status = {}, [], "", 500
        for name in ("admission.yaml", "admission-policy.yaml"):
            for item in yaml.safe_load_all((BASE / name).read_text()):
                path = f"{API}/{item['kind'].lower()}s/{item['metadata']['name']}"
                self.objects[path] = self.complete(item)
        self.objects[f"{BINDINGS}/of-another"] = {"metadata": {"name": "of-another"}, "spec": {"policyName": "theirs"}}
        self.first = {path: item for path, item in self.objects.items() if not path.endswith("of-another")}

    def complete(self, item):
        return {**item, "metadata": {**item["metadata"], "uid": "u", "resourceVersion": "7", "managedFields": []}}

    async def answer(self, request):
        return self.read(request.path) if request.method == "GET" else await self.write(request)

    def read(self, path):
        if path in self.objects:
            return web.json_response(self.objects[path])
        items = [item for name, item in self.objects.items() if name.rpartition("/")[0] == path]
        return (
            web.json_response({"items": items})
            if items or path.endswith("s")
            else api_stub.refuse(404, "NotFound", path)
        )

    async def write(self, request):
        path, key, body = request.path, f"{request.method} {request.path}", json.loads(await request.read())
        is_dry_run = request.query.get("dryRun") == "All" or body.get("dryRun") == ["All"]
        if self.refused and path.startswith(self.refused):
            return api_stub.refuse(self.status, "Test", "no")
        if not is_dry_run:
            self.writes.append(key)
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return api_stub.refuse(409, "AlreadyExists", path)
        if request.method == "DELETE":
            if path not in self.objects:
                return api_stub.refuse(404, "NotFound", path)
            if not is_dry_run:
                del self.objects[path]
        elif not is_dry_run:
            assert "resourceVersion" not in body["metadata"]
            self.objects[path] = self.complete(body)
        return web.json_response(body)


@pytest_asyncio.fixture
async def cluster():
    return Cluster()


@pytest_asyncio.fixture
async def run(cluster, tmp_path, capsys):
    async with api_stub.serve(cluster.answer) as port:
        kubeconfig = api_stub.kubeconfig(tmp_path, port)

        async def call(*words):
            code = await asyncio.to_thread(railwright.main, [*words, "--kubeconfig", kubeconfig])
            captured = capsys.readouterr()
            return code, captured.out, captured.err

        yield call


def list_present(cluster):
    return {path for path in cluster.objects if path in cluster.first and "policys/" not in path}


async def test_disable_deletes_bindings_first_and_enable_restores_them_last(cluster, run):
    before = list_present(cluster)
    code, out, _ = await run("disable")
    assert code == 0
    assert cluster.writes[0] == f"POST {COPIES}", "the copy is written before anything is deleted"
    assert cluster.writes[-1] == f"DELETE {WEBHOOK}", "a binding rejects pods that the webhooks do not inject"
    assert all(write.startswith(f"DELETE {BINDINGS}/") for write in cluster.writes[1:-1])
    left = {path for path in list_present(cluster) if "validatingwebhook" not in path}
    assert left == set()
    assert f"{BINDINGS}/of-another" in cluster.objects
    assert "labelled only on the Job" in out
    cluster.writes.clear()
    code, out, _ = await run("enable")
    assert code == 0
    assert cluster.writes[0] == f"POST {API}/mutatingwebhookconfigurations"
    assert cluster.writes[-1] == f"DELETE {COPY}"
    assert list_present(cluster) == before
    for path in before:
        restored, first = cluster.objects[path], cluster.first[path]
        key = "spec" if "spec" in first else "webhooks"
        assert (restored[key], restored["metadata"]["labels"]) == (first[key], first["metadata"]["labels"])


async def test_disable_and_enable_may_be_repeated(cluster, run):
    await run("disable")
    cluster.writes.clear()
    assert (await run("disable"))[:2] == (
        0,
        "disabled already: there is no webhook and no policy binding of railwright\n",
    )
    assert cluster.writes == []
    await run("enable")
    cluster.writes.clear()
    code, out, _ = await run("enable")
    assert (code, cluster.writes) == (0, [])
    assert out.startswith("enabled already: ")


async def test_bindings_are_not_restored_without_the_webhooks(cluster, run):
    """They would reject every labelled pod."""
    before, webhook = list_present(cluster), cluster.objects.pop(WEBHOOK)
    code, out, _ = await run("disable")
    assert code == 0
    assert "To undo: railwright enable." not in out
    assert "ConfigMap railwright-system/railwright-disabled has no MutatingWebhookConfiguration railwright" in out
    cluster.writes.clear()
    code, _, err = await run("enable")
    assert (code, cluster.writes) == (2, [])
    assert "has no MutatingWebhookConfiguration railwright, which had been deleted before `railwright disable`" in err
    assert COPY in cluster.objects
    cluster.objects[WEBHOOK] = webhook
    assert (await run("enable"))[0] == 0
    assert list_present(cluster) == before
    assert COPY not in cluster.objects


async def test_a_dry_run_tries_each_change_and_stores_nothing(cluster, run):
    before = dict(cluster.objects)
    code, out, _ = await run("disable", "--dry-run")
    assert (code, cluster.writes, cluster.objects) == (0, [], before)
    assert "would have deleted MutatingWebhookConfiguration railwright\n" in out
    await run("disable")
    cluster.writes.clear()
    code, out, _ = await run("enable", "--dry-run")
    assert (code, cluster.writes) == (0, [])
    assert "would have created MutatingWebhookConfiguration railwright\n" in out


async def test_a_failed_run_is_continued_by_the_next(cluster, run):
    before = list_present(cluster)
    cluster.refused = WEBHOOK
    code, _, _ = await run("disable")
    assert code == 2
    assert WEBHOOK in cluster.objects
    cluster.refused = ""
    assert (await run("disable"))[0] == 0
    cluster.refused = BINDINGS
    assert (await run("enable"))[0] == 2
    assert COPY in cluster.objects
    cluster.refused = ""
    code, out, _ = await run("enable")
    assert (code, list_present(cluster)) == (0, before)
    assert "exists already, and stays as it is: MutatingWebhookConfiguration railwright\n" in out


async def test_without_the_permission_to_store_a_copy_nothing_is_deleted(cluster, run):
    cluster.refused, cluster.status, before = COPIES, 403, dict(cluster.objects)
    code, _, err = await run("disable")
    assert (code, cluster.objects) == (2, before)
    assert "configmaps" in err


async def test_without_its_namespace_the_webhooks_are_deleted_all_the_same(cluster, run):
    cluster.refused, cluster.status = COPIES, 404
    code, out, _ = await run("disable")
    assert (code, WEBHOOK in cluster.objects) == (0, False)
    assert "No copy was kept" in out
    assert "To undo: railwright enable" not in out
    code, _, err = await run("enable")
    assert code == 2
    assert "nothing to restore: no ConfigMap railwright-system/railwright-disabled; to enable railwright: " in err


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"kind": "Pod"}]'])
async def test_a_copy_that_was_edited_is_named(cluster, run, text):
    await run("disable")
    cluster.objects[COPY]["data"]["objects.json"] = text
    code, _, err = await run("enable")
    assert code == 2
    assert "railwright-disabled" in err
