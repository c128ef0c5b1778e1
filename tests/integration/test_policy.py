"""The API server asks the webhook about each policy: an invalid one is refused, a valid one may get warnings."""

import pytest
from plane import api, manifests, registration, waiting
from plane import site as sites

VALIDATION = "ValidatingWebhookConfiguration"
POLICY = manifests.policy({"ib": manifests.fabric()})
BROKEN = "apiVersion: railwright.io/v1alpha1\nfabrics:\n  ib: {transport: infinibandd}\ncolour: red\n"


async def test_an_invalid_policy_is_refused_with_all_errors(plane, namespace, site):
    await site.install(POLICY, namespace)
    configuration = registration.read_shipped(
        site.webhook.port, plane.certificates.authority.certificate_pem, VALIDATION
    )
    for hook in configuration["webhooks"]:
        hook["timeoutSeconds"] = 30  # it fails open, and a busy machine takes its time
    await plane.api.create(configuration)
    try:

        async def is_refused() -> str:
            try:
                await site.policy(BROKEN)
            except api.ApiError as error:
                return error.message
            raise AssertionError("the API server does not ask the webhook yet")

        message = await waiting.wait(is_refused, describe="an invalid policy to be refused")
        assert "ConfigMap railwright-system/railwright-policy: 2 errors in policy.yaml:" in message
        assert "line 3: fabrics.ib.transport: " in message
        assert "line 4: colour: " in message
        with pytest.raises(api.ApiError, match=r"key policy\.yaml is missing"):
            await plane.api.put(
                manifests.build("ConfigMap", sites.CONFIGMAP, {"namespace": sites.NAMESPACE}, data={"other": POLICY})
            )
    finally:
        await plane.api.delete(VALIDATION, "railwright")
