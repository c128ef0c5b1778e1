"""The kustomize base and an overlay, as kubectl renders them; test_check.py applies the base."""

import pages
import yaml
from plane.site import BASE

from railwright.fabric import names, version


async def test_the_kustomization_of_the_operator_guide_renders_the_base_with_a_policy(plane, tmp_path):
    (text,) = [
        block.text
        for block in pages.blocks(pages.DOCS / "operator-guide.md")
        if "kind: Kustomization" in block.text and block.language == "yaml"
    ]
    ours, own = tmp_path / "railwright" / "manifests", tmp_path / "own"
    ours.parent.mkdir()
    own.mkdir()
    ours.symlink_to(pages.ROOT / "manifests")
    policy = (pages.ROOT / "manifests/examples/360-roce/policy.yaml").read_text()
    (own / "policy.yaml").write_text(policy)
    (own / "kustomization.yaml").write_text(text)
    rendered = list(yaml.safe_load_all(await plane.kubectl("kustomize", str(own))))
    base = list(yaml.safe_load_all(await plane.kubectl("kustomize", str(BASE))))
    policy_of_ours = ("ConfigMap", names.POLICY_CONFIGMAP)
    assert policy_of_ours not in map(read_identity, base), "applying the base again would put it over the operator's"
    assert sorted(map(read_identity, rendered)) == sorted([*map(read_identity, base), policy_of_ours])
    images = {
        c["image"]
        for tree in rendered
        if tree["kind"] == "Deployment"
        for c in tree["spec"]["template"]["spec"]["containers"]
    }
    assert images == {f"REGISTRY/railwright:{version.VERSION}"}
    (config_map,) = [tree for tree in rendered if read_identity(tree) == policy_of_ours]
    assert config_map["data"][names.POLICY_KEY] == policy


def read_identity(tree: dict) -> tuple[str, str]:
    return tree["kind"], tree["metadata"]["name"]
