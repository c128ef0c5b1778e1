"""One trace from a client through the real API server into our webhook."""

import secrets

import collector as collectors
from plane import manifests


async def test_the_webhook_continues_the_trace_of_the_api_server(namespace, site, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds
    async with collectors.opened() as collector:
        policy, options = manifests.policy({"ib": manifests.fabric()}), (f"--otlp-endpoint={collector.endpoint}",)
        await site.install(policy, namespace, options=options)
        trace, client = secrets.token_hex(16), secrets.token_hex(8)
        async with site.plane.session.post(
            f"{site.plane.parts.server}/api/v1/namespaces/{namespace}/pods",
            json=manifests.pod("traced", "ib", schedulerName="nobody"),
            headers={"traceparent": f"00-{trace}-{client}-01"},
        ) as answer:
            created = await answer.json()
            assert answer.status == 201, created
        assert "railwright.io/injection" in created["metadata"]["annotations"]
        spans = await collector.trace(trace, 4)
    request = spans["POST /mutate/pods"]
    assert request.parent not in {"", client}, "the API server's own span stands between"
    assert {spans[name].parent for name in ("decode", "plan", "patch")} == {request.span}
    assert (request.attributes["k8s.namespace.name"], request.attributes["railwright.decision"]) == (
        namespace,
        "patched",
    )
