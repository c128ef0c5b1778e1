"""`railwright certs rotate` against a real API server where railwright is not installed."""

import asyncio
import json

from railwright.cli.__main__ import main


def run(*arguments):
    return asyncio.to_thread(main, ["certs", "rotate", *arguments])


async def test_certs_rotate_reports_missing_webhook_configurations_with_the_next_step(plane, namespace, capsys):
    async def read_secrets():
        return {secret["metadata"]["name"]: secret for secret in await plane.api.list("Secret", namespace)}

    common = (f"--namespace={namespace}", f"--kubeconfig={plane.kubeconfig}")
    assert await run(*common) == 1
    printed = capsys.readouterr()
    assert "renew: a certificate is missing" in printed.out
    assert "next: " in printed.out.splitlines()[-1]
    assert "MutatingWebhookConfiguration 'railwright' does not exist; apply the manifests" in printed.err
    made = await read_secrets()
    assert set(made) == {"railwright-ca", "railwright-webhook-tls"}, "there is no extender"
    assert {secret["type"] for secret in made.values()} == {"kubernetes.io/tls"}

    assert await run(*common, "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["steps"] == []
    assert await read_secrets() == made  # resourceVersion too


async def test_certs_rotate_names_a_missing_namespace(plane, capsys):
    assert await run("--namespace=no-such-namespace", f"--kubeconfig={plane.kubeconfig}") == 2
    assert 'namespaces "no-such-namespace" not found' in capsys.readouterr().err
