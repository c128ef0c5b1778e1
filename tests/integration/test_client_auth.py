"""Client authentication of the real API server, as `railwright certs admission-config` sets it up, and of
kube-scheduler, as the production values do.
"""

import asyncio

import aiohttp
import pytest
from plane import conditions, gangs, manifests
from plane import site as sites
from test_admission import POLICY, pod

from railwright.fabric import names


async def test_only_the_api_servers_certificate_is_accepted(plane, namespace, site):
    """The plane's API server has the configuration of `railwright certs admission-config`."""
    await site.policy(POLICY)
    port = plane.parts.port["webhook-with-client-auth"]
    ca = f"--client-ca={plane.certificates.ca}"
    running = await site.start_webhook(f"--listen=127.0.0.1:{port}", ca, "--client-names=kube-apiserver")
    await site.register(namespace)
    made_pod = await plane.api.create(pod("p", label="ib"), namespace=namespace, dry_run=True)
    assert names.INJECTION in made_pod["metadata"]["annotations"]

    url = f"https://127.0.0.1:{port}/mutate/pods"
    with pytest.raises(aiohttp.ClientError):  # without a certificate: a reset, an alert or an end
        await plane.strangers.post(url, json={})
    async with plane.session.post(url, json={}) as answer:  # with one of the same authority: `admin`
        assert answer.status == 403
    assert 'railwright_requests_total{outcome="403",path="/mutate/pods"} 1.0' in await running.metrics()


async def test_each_certificate_opens_only_the_paths_of_its_owner(plane, namespace, nodes, site):
    await nodes.make("free-0", rails=gangs.ONE_EACH)
    await site.policy(gangs.policy())
    certificates = plane.certificates
    callers = (f"--client-ca={certificates.ca}", "--client-names=kube-scheduler", "--volcano-listen=127.0.0.1:0")
    _, extender = await asyncio.gather(site.start_webhook(), site.start_extender(*callers, has_tls=True))
    await site.register(namespace)
    certificate, key = certificates.client("scheduler-client", "kube-scheduler")
    entry = gangs.entry(f"https://127.0.0.1:{extender.port}")
    tls = {"caFile": str(certificates.ca), "certFile": str(certificate), "keyFile": str(key)}
    await plane.schedulers.kube({**entry, "enableHTTPS": True, "tlsConfig": tls})
    pod = manifests.pod(fabric="rails", limits={"nvidia.com/gpu": 1, "cpu": 1})
    await plane.api.create(manifests.workload("Deployment", pod, name="serve"), namespace=namespace)

    (running,) = await conditions.wait_running(plane.api, namespace, "app=serve", 1)
    answered = await sites.metric(extender, "railwright_requests_total", path="/scheduler/filter", outcome="ok")
    assert answered >= 1
    name = running["metadata"]["name"]
    for session in (plane.strangers, plane.session):  # without a certificate; with one of the same authority: `admin`
        for method, path, status in (
            ("POST", "/scheduler/filter", 403),
            ("POST", "/volcano/allocate", 404),
            ("GET", f"/explain/{namespace}/{name}", 401),
        ):
            async with session.request(method, f"https://127.0.0.1:{extender.port}{path}", json={}) as answer:
                assert answer.status == status, await answer.text()
