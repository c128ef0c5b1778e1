"""The table of shipped entries against the manifest it speaks of."""

import installations
import msgspec
import yaml

from railwright.cli.checking import expected_entries, snapshots, webhook_configurations

HOOKS = {
    hook["name"]: (document["kind"], hook)
    for document in yaml.safe_load_all((installations.BASE / "admission.yaml").read_text())
    for hook in document["webhooks"]
}


def expressions(selector):
    return {
        expression
        for expression in webhook_configurations._parse_expressions(selector)
        if expression[0] != expected_entries.NAME_LABEL
    }


def test_the_table_of_entries_is_the_manifests():
    assert {
        name: expected_entries.Entry(
            path=hook["clientConfig"]["service"]["path"],
            closed=hook["failurePolicy"] == "Fail",
            seconds=hook["timeoutSeconds"],
            resources=webhook_configurations._list_called(hook),
            objects=tuple(sorted(expressions(hook.get("objectSelector")))),
            namespaces=tuple(sorted(expressions(hook.get("namespaceSelector")))),
            conditions=tuple(match_condition["name"] for match_condition in hook.get("matchConditions", ())),
            mutating=kind.startswith("Mutating"),
            reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
        )
        for name, (kind, hook) in HOOKS.items()
    } == {
        name: msgspec.structs.replace(
            item, objects=tuple(sorted(item.objects)), namespaces=tuple(sorted(item.namespaces))
        )
        for name, item in expected_entries.ENTRIES.items()
    } | {
        # of the validating entry the namespace is the only selector, and by name
        "policy.railwright.io": expected_entries.ENTRIES["policy.railwright.io"]
    }


def test_names_of_secrets_and_configurations_are_the_manifests():
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
