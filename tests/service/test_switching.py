"""`railwright disable` and `enable` against an API server: the order, the copy, repeated and interrupted runs."""

import asyncio
import os
import sys

import pytest
import yaml
from pages import ROOT

API = "/apis/admissionregistration.k8s.io/v1"
WEBHOOK = f"{API}/mutatingwebhookconfigurations/railwright"
BINDINGS = f"{API}/validatingadmissionpolicybindings"
COPIES = "/api/v1/namespaces/railwright-system/configmaps"
COPY = f"{COPIES}/railwright-disabled"
OTHER = f"{BINDINGS}/of-another"
OURS = {
    f"{API}/{item['kind'].lower()}s/{item['metadata']['name']}".replace("policys/", "policies/"): item
    for name in ("admission.yaml", "admission-policy.yaml")
    for item in yaml.safe_load_all((ROOT / "manifests" / "base" / name).read_text())
}


@pytest.fixture(autouse=True)
def _installed(cluster):
    for path, item in OURS.items():
        cluster.lists[path.rpartition("/")[0]] = []  # a kind that is served also without objects
        cluster.keep(path, {**item, "metadata": {**item["metadata"], "managedFields": []}})
    cluster.keep(OTHER, {"metadata": {"name": "of-another"}, "spec": {"policyName": "theirs"}})


def refuse_writes(cluster, path: str = "", status: int = 500) -> None:
    """Refuse the writes to a path and below it; without a path, none."""
    cluster.fault = lambda asked: status if path and asked.method != "GET" and asked.path.startswith(path) else None


def list_present(cluster):
    return {path for path in cluster.stored if path in OURS and "policies/" not in path}


async def test_disable_deletes_bindings_first_and_enable_restores_them_last(cluster, run):
    before = list_present(cluster)
    code, out, _ = await run("disable")
    assert code == 0
    assert cluster.changes[0] == f"POST {COPIES}", "the copy is written before anything is deleted"
    assert cluster.changes[-1] == f"DELETE {WEBHOOK}", "a binding rejects pods that the webhooks do not inject"
    assert all(write.startswith(f"DELETE {BINDINGS}/") for write in cluster.changes[1:-1])
    left = {path for path in list_present(cluster) if "validatingwebhook" not in path}
    assert left == set()
    assert OTHER in cluster.stored
    assert "with the label only on the Job" in out
    cluster.changes.clear()
    code, out, _ = await run("enable")
    assert code == 0
    assert cluster.changes[0] == f"POST {API}/mutatingwebhookconfigurations"
    assert cluster.changes[-1] == f"DELETE {COPY}"
    assert list_present(cluster) == before
    for path in before:
        restored, first = cluster.stored[path], OURS[path]
        key = "spec" if "spec" in first else "webhooks"
        assert (restored[key], restored["metadata"]["labels"]) == (first[key], first["metadata"]["labels"])


async def test_disable_and_enable_may_be_repeated(cluster, run):
    await run("disable")
    cluster.changes.clear()
    assert (await run("disable"))[:2] == (
        0,
        "disabled already: there is no webhook and no policy binding of railwright\n",
    )
    assert cluster.changes == []
    await run("enable")
    cluster.changes.clear()
    code, out, _ = await run("enable")
    assert (code, cluster.changes) == (0, [])
    assert out.startswith("enabled already: ")


async def test_bindings_are_not_restored_without_the_webhooks(cluster, run):
    """They would reject every labelled pod."""
    before, webhook = list_present(cluster), cluster.stored.pop(WEBHOOK)
    assert (await run("disable"))[0] == 0
    cluster.changes.clear()
    code, _, err = await run("enable")
    assert (code, cluster.changes) == (2, [])
    assert "has no MutatingWebhookConfiguration railwright, because it was deleted before `railwright disable`" in err
    assert COPY in cluster.stored
    cluster.stored[WEBHOOK] = webhook
    assert (await run("enable"))[0] == 0
    assert list_present(cluster) == before
    assert COPY not in cluster.stored


async def test_a_dry_run_tries_each_change_and_stores_nothing(cluster, run):
    before = dict(cluster.stored)
    code, out, _ = await run("disable", "--dry-run")
    assert (code, cluster.changes, cluster.stored) == (0, [], before)
    assert "would have deleted MutatingWebhookConfiguration railwright\n" in out
    await run("disable")
    cluster.changes.clear()
    code, out, _ = await run("enable", "--dry-run")
    assert (code, cluster.changes) == (0, [])
    assert "would have created MutatingWebhookConfiguration railwright\n" in out


async def test_disable_and_enable_continue_where_an_earlier_run_failed(cluster, run):
    before = list_present(cluster)
    refuse_writes(cluster, WEBHOOK)
    code, _, _ = await run("disable")
    assert code == 2
    assert WEBHOOK in cluster.stored
    refuse_writes(cluster)
    assert (await run("disable"))[0] == 0
    refuse_writes(cluster, BINDINGS)
    assert (await run("enable"))[0] == 2
    assert COPY in cluster.stored
    refuse_writes(cluster)
    code, out, _ = await run("enable")
    assert (code, list_present(cluster)) == (0, before)
    assert "MutatingWebhookConfiguration railwright exists already, so it was not changed\n" in out


async def test_disable_deletes_nothing_without_the_permission_to_store_a_copy(cluster, run):
    before = dict(cluster.stored)
    refuse_writes(cluster, COPIES, 403)
    code, _, err = await run("disable")
    assert (code, cluster.stored) == (2, before)
    assert "configmaps" in err


async def test_the_webhooks_are_deleted_even_if_their_namespace_does_not_exist(cluster, run):
    refuse_writes(cluster, COPIES, 404)
    code, out, _ = await run("disable")
    assert (code, WEBHOOK in cluster.stored) == (0, False)
    assert "No copy was kept" in out
    assert "To undo: railwright enable" not in out
    code, _, err = await run("enable")
    assert code == 2
    assert "nothing to restore, because ConfigMap railwright-system/railwright-disabled does not exist" in err


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"kind": "Pod"}]'])
async def test_enable_names_the_copy_if_it_is_not_a_list_of_objects(cluster, run, text):
    await run("disable")
    cluster.stored[COPY]["data"]["objects.json"] = text
    code, _, err = await run("enable")
    assert code == 2
    assert "railwright-disabled" in err


@pytest.mark.parametrize("words", [("disable",), ("enable",), ("certs", "rotate")], ids=" ".join)
async def test_a_change_is_completed_even_if_the_output_is_closed(cluster, run, words):
    if words == ("enable",):
        await run("disable")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "railwright.cli", *words, "--kubeconfig", cluster.kubeconfig),
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},  # as in the image: each line is written at once
            stdout=writing,
            stderr=asyncio.subprocess.PIPE,
        )
    finally:
        os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    assert (WEBHOOK in cluster.stored) is (words != ("disable",))
    assert (COPY in cluster.stored) is (words == ("disable",))
