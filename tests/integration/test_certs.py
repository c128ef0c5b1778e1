"""`railwright certs` against a real API server: Secrets, caBundle, and a second run that changes nothing."""

import asyncio
import json

import pytest_asyncio

from railwright.cli.__main__ import main

NAME = "railwright"


def run(*arguments):
    return asyncio.to_thread(main, ["certs", "rotate", *arguments])


def configuration(kind, namespace):
    def build_webhook(name, client_config):
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
    by_url = {"url": "https://127.0.0.1:9/mutate/workloads"}
    hooks = [
        build_webhook("service", service),
        build_webhook("url", by_url),
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": hooks,
    }


@pytest_asyncio.fixture(loop_scope="session")
async def configurations(plane, namespace):
    """Yield our two configurations."""
    kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    for kind in kinds:
        await plane.api.create(configuration(kind, namespace))
    yield kinds
    for kind in kinds:
        await plane.api.delete(kind, NAME)


async def secrets(plane, namespace):
    return {secret["metadata"]["name"]: secret for secret in await plane.api.list("Secret", namespace)}


async def test_rotate_issues_what_is_missing_and_a_second_run_changes_nothing(plane, namespace, configurations, capsys):
    extender = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "railwright-extender"}}
    await plane.api.create({**extender, "spec": {"ports": [{"port": 8713}]}}, namespace=namespace)
    common = (f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}")
    assert await run(*common) == 0
    stdout = capsys.readouterr().out
    assert "renew: missing" in stdout
    assert "next: " in stdout.splitlines()[-1]
    made = await secrets(plane, namespace)
    assert len(made) == 4
    assert {secret["type"] for secret in made.values()} == {"kubernetes.io/tls"}
    authority = made["railwright-ca"]["data"]["ca.crt"]
    assert {secret["data"]["ca.crt"] for secret in made.values()} == {authority}
    for kind in configurations:
        hooks = (await plane.api.get(kind, NAME))["webhooks"]
        assert [hook["clientConfig"].get("caBundle") for hook in hooks] == [authority, authority]

    assert await run(*common, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == []
    assert await secrets(plane, namespace) == made  # resourceVersion too: nothing was written


async def test_without_an_extender_missing_configurations_are_a_finding_that_names_the_next_step(
    plane, namespace, capsys
):
    assert await run(f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}") == 1
    assert "MutatingWebhookConfiguration 'railwright' does not exist; apply the manifests" in capsys.readouterr().err
    assert set(await secrets(plane, namespace)) == {"railwright-ca", "railwright-webhook-tls"}


async def test_a_missing_namespace_is_named(plane, capsys):
    assert await run("--namespace=no-such-namespace", f"--kubeconfig={plane.kubeconfig}") == 2
    assert 'namespaces "no-such-namespace" not found' in capsys.readouterr().err
