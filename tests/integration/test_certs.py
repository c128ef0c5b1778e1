"""`railwright certs issue` against a real API server: Secrets, caBundle, and a second run that changes nothing."""

import asyncio
import base64
import json

import pytest_asyncio

from railwright.cli.__main__ import main

NAME = "railwright"


def run(*arguments, action="issue"):
    return asyncio.to_thread(main, ["certs", action, *arguments])


def configuration(kind, namespace, *foreign):
    def webhook(name, client_config):
        return {
            "name": f"{name}.railwright.io",
            "clientConfig": client_config,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [
                {"apiGroups": ["none.invalid"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}
            ],
        }

    service = {"service": {"name": "railwright-webhook", "namespace": namespace, "path": "/mutate/pods"}}
    by_url = {"url": "https://127.0.0.1:9/mutate/bindings"}
    hooks = [webhook("service", service), webhook("url", by_url), *(webhook(*arguments) for arguments in foreign)]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": hooks,
    }


@pytest_asyncio.fixture(loop_scope="session")
async def configurations(plane, namespace):
    """Yield our two configurations; the validating one also has another author's webhook."""
    foreign = ("foreign", {"service": {"name": "other", "namespace": "other-system"}, "caBundle": "Zm9yZWlnbg=="})
    kinds = {"MutatingWebhookConfiguration": (), "ValidatingWebhookConfiguration": (foreign,)}
    for kind, others in kinds.items():
        await plane.api.create(configuration(kind, namespace, *others))
    yield list(kinds)
    for kind in kinds:
        await plane.api.delete(kind, NAME)


async def secrets(plane, namespace):
    return {secret["metadata"]["name"]: secret for secret in await plane.api.list("Secret", namespace)}


async def test_secrets_and_ca_bundles_are_written_and_a_second_run_changes_nothing(
    plane, namespace, configurations, tmp_path, capsys
):
    arguments = (
        "--secrets",
        f"--namespace={namespace}",
        f"--kubeconfig={plane.kubeconfig}",
        f"--out={tmp_path / 'out'}",
    )
    assert await run(*arguments) == 0
    capsys.readouterr()
    made = await secrets(plane, namespace)
    assert set(made) == {"railwright-ca", "railwright-webhook-tls", "railwright-extender-tls"}
    assert {secret["type"] for secret in made.values()} == {"kubernetes.io/tls"}
    authority = made["railwright-ca"]["data"]["tls.crt"]
    assert {secret["data"]["ca.crt"] for secret in made.values()} == {authority}
    assert (tmp_path / "out" / "ca.crt").read_bytes() == base64.b64decode(authority)
    assert (tmp_path / "out" / "client.key").exists()
    for kind in configurations:
        hooks = (await plane.api.get(kind, NAME))["webhooks"]
        assert [hook["clientConfig"].get("caBundle") for hook in hooks[:2]] == [authority, authority]
    assert [hook["clientConfig"]["caBundle"] for hook in hooks[2:]] == ["Zm9yZWlnbg=="]

    assert await run(*arguments, "-o", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {certificate["state"] for certificate in document["certificates"]} == {"kept"}
    assert [configuration["filled"] for configuration in document["configurations"]] == [[], []]
    assert [configuration["foreign"] for configuration in document["configurations"]] == [[], ["foreign.railwright.io"]]
    assert await secrets(plane, namespace) == made  # resourceVersion too: nothing was written


async def test_issue_into_an_empty_folder_takes_the_ca_of_the_cluster(plane, namespace, configurations, tmp_path):
    common = ("--secrets", f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}")
    assert await run(*common) == 0
    made = await secrets(plane, namespace)
    assert await run(*common, f"--out={tmp_path}") == 0
    assert await secrets(plane, namespace) == made
    authority = made["railwright-ca"]["data"]["tls.crt"]
    assert (tmp_path / "ca.crt").read_bytes() == base64.b64decode(authority)


async def test_two_different_cas_are_refused_before_anything_is_written(
    plane, namespace, configurations, tmp_path, capsys
):
    common = ("--secrets", f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}")
    assert await run(*common) == 0
    made = await secrets(plane, namespace)
    assert await run(f"--out={tmp_path}") == 0
    assert await run(*common, f"--out={tmp_path}") == 2
    assert "two different CAs" in capsys.readouterr().err
    assert await secrets(plane, namespace) == made


async def test_missing_configurations_are_a_finding_that_names_the_next_step(plane, namespace, capsys):
    assert await run("--secrets", f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}") == 1
    assert "MutatingWebhookConfiguration 'railwright' does not exist; apply the manifests" in capsys.readouterr().err
    assert len(await secrets(plane, namespace)) == 3


async def test_rotate_takes_the_due_step_and_writes_the_callers_files(
    plane, namespace, configurations, tmp_path, capsys
):
    common = (f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}")
    assert await run(*common, "--clients", action="rotate") == 0
    stdout = capsys.readouterr().out
    assert "renew: missing" in stdout
    assert "next: " in stdout.splitlines()[-1]
    made = await secrets(plane, namespace)
    assert len(made) == 5
    for kind in configurations:
        hooks = (await plane.api.get(kind, NAME))["webhooks"]
        assert {hook["clientConfig"]["caBundle"] for hook in hooks[:2]} == {made["railwright-ca"]["data"]["ca.crt"]}
    assert await run(*common, "--clients", "-o", "json", action="rotate") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == []
    assert await secrets(plane, namespace) == made, "nothing was due"

    # in the overlap of two authorities, issuing by hand keeps both trusted
    assert await run(*common, "--clients", "--renew-ca", action="rotate") == 0
    both = (await secrets(plane, namespace))["railwright-ca"]["data"]["ca.crt"]
    assert await run("--secrets", *common, "--host=10.0.0.8") == 0
    after = await secrets(plane, namespace)
    assert {secret["data"]["ca.crt"] for secret in after.values()} == {both}
    assert after["railwright-ca"]["data"]["next.key"]

    out = tmp_path / "files"
    capsys.readouterr()
    assert await run(f"--out={out}", *common, "--user=127.0.0.1:9443", "-o", "json", action="admission-config") == 0
    written = {path.name for path in out.iterdir()}
    assert set(json.loads(capsys.readouterr().out)["changed"]) >= {"apiserver", "scheduler", "ca.crt", "admission.yaml"}
    assert written >= {"apiserver.crt", "apiserver.key", "scheduler.key", "ca.crt", "admission.yaml", "kubeconfig.yaml"}
    assert await run(f"--out={out}", *common, "--user=127.0.0.1:9443", action="admission-config") == 0
    assert "nothing changed" in capsys.readouterr().out


async def test_a_missing_namespace_is_named(plane, capsys):
    assert await run("--secrets", "--namespace=no-such-namespace", f"--kubeconfig={plane.kubeconfig}") == 2
    assert "create namespace no-such-namespace first" in capsys.readouterr().err
