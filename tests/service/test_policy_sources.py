"""Commands read the policy in force from its ConfigMap."""

import api_stub
import pytest

from railwright.cli import output, policy_sources

TEXT = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
METADATA = {"name": "railwright-policy", "namespace": "railwright-system"}


def config_map(text: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": {"policy.yaml": text}}


async def test_the_policy_is_read_from_its_config_map(stub, client):
    stub.lists.append(config_map(TEXT))
    policy, source = await policy_sources.fetch_policy(client)
    assert (list(policy.document.fabrics), source) == (["f"], "ConfigMap railwright-system/railwright-policy")
    assert [request.path for request in stub.asked] == [
        "/api/v1/namespaces/railwright-system/configmaps/railwright-policy"
    ]


async def test_an_invalid_policy_is_an_error_with_its_faults_and_the_command_to_edit_it(stub, client):
    stub.lists.append(config_map(TEXT.replace("tcp", "tpc")))
    with pytest.raises(output.UnreadableError) as refused:
        await policy_sources.fetch_policy(client)
    assert "ConfigMap railwright-system/railwright-policy:2: fabrics.f.transport: " in str(refused.value)
    assert "kubectl -n railwright-system edit configmap railwright-policy" in str(refused.value)


@pytest.mark.parametrize("copy", [config_map(TEXT), api_stub.status(403), api_stub.status(404), config_map("a: 1")])
async def test_the_last_valid_policy_is_used_with_a_note_while_the_policy_is_invalid(stub, client, capsys, copy):
    stub.lists += [config_map(TEXT.replace("tcp", "tpc")), copy]
    if copy != config_map(TEXT):
        with pytest.raises(output.UnreadableError, match=r"railwright-policy:2: fabrics\.f\.transport: "):
            await policy_sources.fetch_policy(client)
        return
    policy, source = await policy_sources.fetch_policy(client)
    assert (list(policy.document.fabrics), source) == (["f"], "ConfigMap railwright-system/railwright-last-policy")
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("railwright: ConfigMap railwright-system/railwright-policy:2: fabrics.f.transport: ")
    assert note.endswith(f"; until it is corrected, the last valid policy is used, from {source}")


async def test_a_caller_who_may_not_read_the_policy_is_told_the_role_that_may(stub, client):
    stub.lists.append(api_stub.status(403))
    with pytest.raises(output.UnreadableError, match="--policy FILE") as refused:
        await policy_sources.fetch_policy(client)
    assert "you may not get configmaps/railwright-policy -n railwright-system" in str(refused.value)
    assert "the Role railwright-user has this right" in str(refused.value)


async def test_a_cluster_without_the_config_map_is_an_error_with_the_possible_causes(stub, client):
    stub.lists.append(api_stub.status(404))
    with pytest.raises(output.UnreadableError) as refused:
        await policy_sources.fetch_policy(client)
    assert str(refused.value) == (
        "there is no ConfigMap railwright-system/railwright-policy: railwright is not installed in this cluster, has "
        "no policy yet, or was installed under other names (set RAILWRIGHT_NAMESPACE and RAILWRIGHT_INSTALLATION); to "
        "see which: railwright check. To read it from a file: --policy FILE"
    )
