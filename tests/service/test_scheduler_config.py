"""`railwright policy scheduler-config`: managed resources that only an annotation of a rail's network names."""

import yaml

from railwright.cli.__main__ import main

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    rails:
    - {name: rail0, network: prod/rail0}
    - {name: rail1, resource: nvidia.com/rail1}
"""
NETWORK = {
    "metadata": {
        "name": "rail0",
        "namespace": "prod",
        "annotations": {"k8s.v1.cni.cncf.io/resourceName": "nvidia.com/rail0"},
    }
}
NETWORKS = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions"
SYSTEM = "/api/v1/namespaces/railwright-system"


def list_managed(text: str) -> list[str]:
    (extender,) = yaml.safe_load(text)["extenders"]
    return [resource["name"] for resource in extender["managedResources"]]


async def test_managed_resources_include_those_that_only_a_network_names(cluster, run):
    cluster.keep(
        f"{SYSTEM}/configmaps/railwright-policy",
        {"metadata": {"name": "railwright-policy"}, "data": {"policy.yaml": POLICY}},
    )
    cluster.keep(
        f"{SYSTEM}/services/railwright-extender",
        {"metadata": {"name": "railwright-extender"}, "spec": {"clusterIP": "10.0.0.1"}},
    )
    code, out, err = await run("policy", "scheduler-config")
    assert (code, err, list_managed(out)) == (0, "", ["nvidia.com/rail1"]), "Multus is not installed"
    cluster.lists[NETWORKS] = [NETWORK]
    code, out, err = await run("policy", "scheduler-config")
    assert (code, err, list_managed(out)) == (0, "", ["nvidia.com/rail0", "nvidia.com/rail1"])
    cluster.fault = lambda request: 403 if request.path == NETWORKS else None
    code, out, err = await run("policy", "scheduler-config")
    assert (code, list_managed(out)) == (0, ["nvidia.com/rail1"])
    assert "managedResources lacks the resources of fabrics.roce.rails rail0" in err
    assert "state `resource` of these rails, or get the right to list network-attachment-definitions" in err


def test_with_a_policy_file_a_note_names_rails_whose_resource_is_unknown(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert main(["policy", "scheduler-config", "--policy", str(file)]) == 0
    out, err = capsys.readouterr()
    assert list_managed(out) == ["nvidia.com/rail1"]
    assert "resources of fabrics.roce.rails rail0, which only their networks name; state `res" in err
    file.write_text(POLICY.replace("network: prod/rail0", "resource: a.com/b"))
    assert main(["policy", "scheduler-config", "--policy", str(file)]) == 0
    assert "are missing" not in capsys.readouterr().err
