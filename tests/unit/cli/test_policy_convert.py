"""`railwright policy convert` writes a policy as the manifest of either kind, and the policy stays the same."""

import pathlib

import pytest
import yaml

from railwright.cli import __main__ as command_line
from railwright.cluster import policies

ROOT = pathlib.Path(__file__).parents[3]
POLICIES = sorted((ROOT / "manifests" / "examples").glob("*/policy.yaml"))
COMMENTED = """# Our site
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy

# For pods that name none
defaultFabric: f
fabrics:
  f: {transport: tcp}  # slow
"""


def convert(capsys, *arguments: str) -> str:
    assert command_line.main(["policy", "convert", *arguments]) == 0
    return capsys.readouterr().out


def read(text: str) -> object:
    return policies.read_manifest(text).document


@pytest.mark.parametrize("path", [*POLICIES, ROOT / "manifests" / "base" / "policy.yaml"], ids=str)
def test_every_example_is_the_same_policy_in_both_kinds_and_back(tmp_path, capsys, path):
    resource = convert(capsys, str(path))
    assert yaml.safe_load(resource)["kind"] == "FabricPolicy"
    assert read(resource) == read(path.read_text())
    (tmp_path / "resource.yaml").write_text(resource)
    config_map = convert(capsys, "--to", "configmap", str(tmp_path / "resource.yaml"))
    tree = yaml.safe_load(config_map)
    assert (tree["kind"], list(tree["data"])) == ("ConfigMap", ["policy.yaml"])
    assert tree["metadata"] == {"name": "railwright-policy", "namespace": "railwright-system"}
    assert read(config_map) == read(path.read_text())


def test_comments_stay_and_the_keys_of_the_resource_are_not_repeated(tmp_path, capsys):
    (tmp_path / "policy.yaml").write_text(COMMENTED)
    assert convert(capsys, str(tmp_path / "policy.yaml")) == (
        "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nmetadata:\n  name: railwright-policy\n"
        "  namespace: railwright-system\nspec:\n  # Our site\n\n  # For pods that name none\n  defaultFabric: f\n"
        "  fabrics:\n    f: {transport: tcp}  # slow\n"
    )
    config_map = convert(capsys, "-f", str(tmp_path / "policy.yaml"), "--to", "ConfigMap")
    assert yaml.safe_load(config_map)["data"]["policy.yaml"] == COMMENTED


@pytest.mark.parametrize(
    "text",
    [
        '{"apiVersion": "railwright.io/v1alpha1", "kind": "FabricPolicy", "fabrics": {"f": {"transport": "tcp"}}}',
        "---\n" + COMMENTED + "...\n",
        COMMENTED.replace("{transport: tcp}", '{transport: tcp, env: {A: "a\nkind: b"}}'),
    ],
    ids=["JSON", "marks", "a line that looks like a key"],
)
def test_other_forms_of_the_document_convert_to_the_same_policy(tmp_path, capsys, text):
    (tmp_path / "policy.yaml").write_text(text)
    resource = convert(capsys, str(tmp_path / "policy.yaml"))
    assert yaml.safe_load(resource).keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert yaml.safe_load(resource)["spec"].keys() <= {"defaultFabric", "fabrics"}
    assert read(resource) == read(text)


def test_an_invalid_policy_is_not_converted(tmp_path, capsys):
    (tmp_path / "policy.yaml").write_text(COMMENTED.replace("tcp", "tpc"))
    assert command_line.main(["policy", "convert", str(tmp_path / "policy.yaml")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert 'policy.yaml:8: fabrics.f.transport: "tpc" is not allowed' in captured.err
    assert "railwright policy validate" in captured.err


def test_a_file_of_several_policies_is_not_converted(tmp_path, capsys):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(COMMENTED)
    assert command_line.main(["policy", "convert", str(tmp_path)]) == 2
    assert "2 files: a cluster has one policy; give its file" in capsys.readouterr().err
