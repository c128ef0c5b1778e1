"""The names of installed objects, and the entries that `check` expects, against the manifests."""

import installations
import yaml

from railwright.cli.checking import snapshots, webhook_configurations

HOOKS = {
    hook["name"]: hook
    for document in yaml.safe_load_all((installations.BASE / "admission.yaml").read_text())
    for hook in document["webhooks"]
}


def test_the_expected_entries_are_those_of_the_manifest():
    expected = webhook_configurations.read_expected()
    assert expected == {name: webhook_configurations.read_entry(hook) for name, hook in HOOKS.items()}
    pods = expected["namespaced-pods.railwright.io"]
    assert (pods.path, pods.failure_policy, pods.seconds) == ("/mutate/pods", "Fail", 5)
    assert pods.called == {("/pods", "CREATE")}
    assert pods.objects == [("railwright.io/fabric", "DoesNotExist", ())]
    assert pods.namespaces == [("railwright.io/fabric", "Exists", ()), ("railwright.io/fabric", "NotIn", ("none",))]
    assert pods.excluded == {"kube-system", "railwright-system"}
    assert pods.conditions == ["is-no-mirror-pod", "requests-devices"]
    assert pods.is_reinvoked


def test_names_of_secrets_and_configurations_are_those_of_the_manifests():
    mounted = {
        manifest["metadata"]["name"]: volume["secret"]["secretName"]
        for manifest in installations.manifests()
        if manifest["kind"] == "Deployment"
        for volume in manifest["spec"]["template"]["spec"].get("volumes", ())
        if "secret" in volume
    }
    assert mounted.items() >= snapshots.SECRETS.items()
    configurations = [
        manifest for manifest in installations.manifests() if manifest["kind"].endswith("WebhookConfiguration")
    ]
    assert {configuration["metadata"]["name"] for configuration in configurations} == {snapshots.CONFIGURATION}
