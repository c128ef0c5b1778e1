"""The manifests and the code agree about certificates."""

import functools
from pathlib import Path

import pytest
import yaml

from certs import installation, inventory
from railwright.cli import dispatch

load = functools.partial(yaml.load_all, Loader=yaml.CSafeLoader)  # libyaml
MANIFESTS = Path(__file__).parents[3] / "manifests"
DOCUMENTS = [document for document in load((MANIFESTS / "base" / "certs.yaml").read_text()) if document]
BASE = [path for path in (MANIFESTS / "base").glob("*.yaml") if path.name != "kustomization.yaml"]
ALL = [document for path in BASE for document in load(path.read_text()) if document]


def find_document(kind: str, name: str = "railwright-certs") -> dict:
    (match,) = [document for document in ALL if (document["kind"], document["metadata"]["name"]) == (kind, name)]
    return match


def test_secrets_are_shipped_empty_and_the_rotator_may_write_no_other_secret():
    shipped = {document["metadata"]["name"]: document for document in DOCUMENTS if document["kind"] == "Secret"}
    issued = set(inventory.SECRETS.values())
    assert set(shipped) == issued
    assert not any({"data", "stringData", "type"} & set(secret) for secret in shipped.values())
    rule, extender = find_document("Role")["rules"]
    assert extender == {
        "apiGroups": [""],
        "resources": ["services"],
        "resourceNames": ["railwright-extender"],
        "verbs": ["get"],
    }
    assert rule["resources"] == ["secrets"]
    assert (set(rule["resourceNames"]), set(rule["verbs"])) == (issued, {"get", "patch", "create"})
    rule, reports = find_document("ClusterRole")["rules"]
    assert (reports["resources"], reports["verbs"]) == (["events"], ["create"])
    assert set(rule["resources"]) == set(installation.KINDS.values())
    assert (rule["resourceNames"], set(rule["verbs"])) == ([installation.CONFIGURATION], {"get", "patch"})


def test_only_the_account_of_the_rotator_may_read_secrets():
    for document in ALL:
        if document["kind"] in ("Role", "ClusterRole") and document["metadata"]["name"] != "railwright-certs":
            assert not any("secrets" in rule.get("resources", ()) for rule in document["rules"]), document["metadata"][
                "name"
            ]


@pytest.mark.parametrize("server", inventory.SERVERS)
def test_servers_mount_only_their_own_certificate_and_wait_until_it_exists(server):
    pod = find_document("Deployment", f"railwright-{server}")["spec"]["template"]["spec"]
    secrets = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    (mounted,) = secrets
    assert mounted["secretName"] == inventory.SECRETS[server]
    assert {item["key"] for item in mounted["items"]} == {"tls.crt", "tls.key", "ca.crt"}
    assert not mounted.get("optional")


def test_the_certs_command_accepts_the_arguments_of_its_deployment():
    (container,) = find_document("Deployment")["spec"]["template"]["spec"]["containers"]
    _, parsed = dispatch.build_parser().parse(container["args"])
    assert parsed.command == "certs"
    assert parsed.watch
    (port,) = container["ports"]
    assert parsed.ops_listen.port == port["containerPort"]


def test_the_deployment_runs_one_rotator_at_a_time():
    spec = find_document("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_production_overlay_requires_the_certificate_of_kube_scheduler():
    production = (MANIFESTS / "overlays" / "production" / "kustomization.yaml").read_text()
    assert f"--client-names={inventory.CALLER}" in production


def test_certificates_of_cert_manager_have_the_names_and_usages_of_the_rotators():
    path = MANIFESTS / "overlays" / "cert-manager" / "certificates.yaml"
    issued = {
        document["spec"]["secretName"]: document["spec"]
        for document in load(path.read_text())
        if document["kind"] == "Certificate"
    }
    assert set(issued) == set(inventory.SECRETS.values())
    for leaf in inventory.list_specs("railwright-system"):
        certificate = issued[inventory.SECRETS[leaf.name]]
        assert certificate["commonName"] == leaf.common_name
        assert {*certificate.get("dnsNames", ()), *certificate.get("ipAddresses", ())} == set(leaf.hosts)
        assert f"{leaf.usage} auth" in certificate["usages"]
