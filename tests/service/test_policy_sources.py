"""Commands read the policy in force: of the FabricPolicy if there is one, otherwise of the ConfigMap."""

import json

import api_stub
import pytest
from aiohttp import web

from railwright.cli import output, policy_sources

SPEC = {"fabrics": {"of-resource": {"transport": "tcp"}}}
TEXT = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics: {of-configmap: {transport: tcp}}\n"
METADATA = {"name": "railwright-policy", "namespace": "railwright-system"}
RESOURCE = {"apiVersion": "railwright.io/v1alpha1", "kind": "FabricPolicy", "metadata": METADATA, "spec": SPEC}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"policy.yaml": TEXT}}
NO_SUCH_GROUP = web.Response(
    status=404, text="404 page not found\n"
)  # as the API server answers without the definition


async def test_the_resource_is_read_if_it_exists(stub, client):
    stub.lists.append(RESOURCE)
    policy, source = await policy_sources.fetch_with_source(client)
    assert list(policy.document.fabrics) == ["of-resource"]
    assert source == "FabricPolicy railwright-system/railwright-policy"
    assert [request.path for request in stub.asked] == [
        "/apis/railwright.io/v1alpha1/namespaces/railwright-system/fabricpolicies/railwright-policy"
    ]


@pytest.mark.parametrize("absent", [api_stub.status(404), NO_SUCH_GROUP], ids=["no object", "no definition"])
async def test_the_config_map_is_read_otherwise(stub, client, absent):
    stub.lists.extend([absent, CONFIG_MAP])
    policy, source = await policy_sources.fetch_with_source(client)
    assert list(policy.document.fabrics) == ["of-configmap"]
    assert source == "ConfigMap railwright-system/railwright-policy"


async def test_an_invalid_resource_is_not_replaced_by_the_config_map(stub, client):
    stub.lists.extend([RESOURCE | {"spec": {"fabrics": {"f": {"transport": "tpc"}}}}, CONFIG_MAP])
    with pytest.raises(output.UnreadableError) as refused:
        await policy_sources.fetch(client)
    assert "FabricPolicy railwright-system/railwright-policy: spec.fabrics.f.transport: " in str(refused.value)
    assert "kubectl -n railwright-system edit fabricpolicy railwright-policy" in str(refused.value)


async def test_a_forbidden_resource_is_not_replaced_by_the_config_map(stub, client):
    stub.lists.extend([api_stub.status(403), CONFIG_MAP])
    with pytest.raises(output.UnreadableError, match="--policy FILE") as refused:
        await policy_sources.fetch(client)
    assert "you may not get fabricpolicies.railwright.io/railwright-policy -n railwright-system" in str(refused.value)
    assert "The right to get ConfigMap railwright-system/railwright-policy is not enough" in str(refused.value)
    assert json.dumps([request.path for request in stub.asked]).count("configmaps") == 0


async def test_without_either_object_both_causes_are_named(stub, client):
    stub.lists.extend([NO_SUCH_GROUP, api_stub.status(404)])
    with pytest.raises(output.UnreadableError) as refused:
        await policy_sources.fetch(client)
    assert str(refused.value) == (
        "there is no FabricPolicy or ConfigMap railwright-policy in namespace railwright-system: railwright is not "
        "installed in this cluster, or has no policy yet; to see which: railwright check. To read it from a file: "
        "--policy FILE"
    )
