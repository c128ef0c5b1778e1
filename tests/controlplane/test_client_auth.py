"""Client authentication of the real API server, as `railwright certs admission-config` sets it up."""

import aiohttp
import pytest
from test_admission import INJECTION, pod, policy


async def test_the_api_server_is_known_by_its_certificate_and_nobody_else_gets_in(plane, namespace, site):
    """The plane's API server runs with the files of `railwright certs admission-config`."""
    await site.policy(policy("1"))
    port = plane.parts.port["webhook-with-client-auth"]
    ca = f"--client-ca={plane.certificates.ca}"
    running = await site.start_webhook(f"--listen=127.0.0.1:{port}", ca, "--client-names=kube-apiserver")
    await site.register(namespace)
    made = await plane.api.create(pod("p", label="ib"), namespace=namespace, dry_run=True)
    assert INJECTION in made["metadata"]["annotations"]

    url = f"https://127.0.0.1:{port}/mutate/pods"
    for session in (plane.strangers, plane.session):  # without a certificate; with one of the same authority: `admin`
        with pytest.raises(aiohttp.ClientError):  # a reset, an alert or an end, as the caller's TLS sees it
            await session.post(url, json={})
    assert "railwright_http_rejected_total" in await running.metrics()
