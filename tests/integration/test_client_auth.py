"""Client authentication of kube-scheduler, as the production values set it up."""

import asyncio

from plane import conditions, gangs, manifests
from plane import site as sites


async def test_paths_of_kube_scheduler_refuse_callers_without_the_certificate_of_kube_scheduler(
    plane, namespace, nodes, site
):
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
    answered = await sites.read_metric(extender, "railwright_requests_total", path="/scheduler/filter", outcome="ok")
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
