"""The installation's namespace and names, by default and as the chart sets them."""

import json
import os
import subprocess
import sys

import pytest

from railwright.cluster import installed_names
from railwright.fabric import names

SHOW = (
    "import json; from certs import installation, inventory; "
    "from railwright.cli.checking import installation as checks, nodes, snapshots; "
    "from railwright.cluster import resources; "
    "print(json.dumps([resources.POLICY.path, resources.POLICY.field_selector, inventory.SECRETS, "
    "inventory.list_hosts('webhook', 'fabrics')[2], installation.CONFIGURATION, snapshots.EXTENDER, "
    "nodes.check_claim_devices.fix, checks.check_installed.fix]))"
)


def test_the_default_names_of_the_installation_are_those_of_the_manifests():
    assert installed_names.NAMESPACE == names.NAMESPACE
    assert installed_names.EXTENDER == names.EXTENDER_SERVICE
    assert installed_names.POLICY == names.POLICY_CONFIGMAP


@pytest.mark.parametrize(("namespace", "name"), [("fabrics", "net"), ("", "")])
def test_servers_and_commands_use_the_names_of_the_environment(namespace, name):
    environment = {**os.environ, "RAILWRIGHT_NAMESPACE": namespace, "RAILWRIGHT_INSTALLATION": name}
    ran = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    path, selector, secrets, host, configuration, extender, fix, install = json.loads(ran.stdout)
    prefix = name or "railwright"  # an empty variable counts as unset
    assert path == f"/api/v1/namespaces/{namespace or 'railwright-system'}/configmaps"
    assert selector == f"metadata.name={prefix}-policy"
    assert secrets["webhook"] == f"{prefix}-webhook-tls"
    assert host == f"{prefix}-webhook.fabrics.svc"
    assert (configuration, extender) == (prefix, f"{prefix}-extender")
    assert f"kubectl -n {namespace or 'railwright-system'} edit configmap {prefix}-policy" in fix
    assert install.startswith(f"helm install {prefix} CHART -n {namespace or 'railwright-system'} --create-namespace")
    assert ("--set fullnameOverride=net, or" in install) == (name == "net")
