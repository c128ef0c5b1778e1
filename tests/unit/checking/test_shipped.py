"""The table of shipped entries against the manifest it speaks of."""

import installations
import yaml

from cli.checking import registrations, shipped
from certs import installation
from cli.checking import seen as sight

HOOKS = {
    hook["name"]: (each["kind"], hook)
    for each in yaml.safe_load_all((installations.BASE / "admission.yaml").read_text())
    for hook in each["webhooks"]
}


def expressions(selector):
    return {each for each in registrations._expressions(selector) if each[0] != shipped.NAME_LABEL}


def test_the_table_of_entries_is_the_manifests():
    assert {
        name: shipped.Entry(
            path=hook["clientConfig"]["service"]["path"],
            closed=hook["failurePolicy"] == "Fail",
            seconds=hook["timeoutSeconds"],
            resources=registrations._called(hook),
            objects=tuple(sorted(expressions(hook.get("objectSelector")))),
            namespaces=tuple(sorted(expressions(hook.get("namespaceSelector")))),
            conditions=tuple(each["name"] for each in hook.get("matchConditions", ())),
            mutating=kind.startswith("Mutating"),
            reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
        )
        for name, (kind, hook) in HOOKS.items()
    } == {
        name: shipped.msgspec.structs.replace(
            each, objects=tuple(sorted(each.objects)), namespaces=tuple(sorted(each.namespaces))
        )
        for name, each in shipped.ENTRIES.items()
    } | {
        # of the validating entry the namespace is the only selector, and by name
        "policy.railwright.io": shipped.ENTRIES["policy.railwright.io"]
    }


def test_the_secrets_are_those_that_the_certificates_command_writes():
    assert set(sight.SECRETS.values()) == set(installation.SECRETS.values()) - {installation.SECRETS["ca"]}
    assert installation.CONFIGURATION == sight.CONFIGURATION
