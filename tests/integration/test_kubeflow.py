"""Jobs of Kubeflow through the real controllers and the real API server: the injection of their pods."""

import json

import pytest
from plane import conditions, jobs, manifests
from plane.manifests import RAILS

FABRIC, INJECTION = (f"railwright.io/{key}" for key in ("fabric", "injection"))
POLICY = manifests.policy({"ib": manifests.fabric(2, security={"capabilities": ["IPC_LOCK"]})})
LABELS = {FABRIC: "ib"}


def container(pod: dict) -> dict:
    (only,) = pod["spec"]["containers"]
    return only


def on_the_object(manifest: dict) -> dict:
    """Return the one label a user writes: on the workload."""
    return manifest | {"metadata": manifest["metadata"] | {"labels": LABELS}}


def templates(value: object) -> list[dict]:
    """Return every pod template in a workload's spec, wherever it is."""
    if isinstance(value, list):
        return [template for child in value for template in templates(child)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [template for child in value.values() for template in templates(child)]


def amounts(spec: dict) -> set[str]:
    return {spec["containers"][0].get("resources", {}).get("limits", {}).get(rail, "0") for rail in RAILS}


@pytest.mark.parametrize("kind", jobs.KINDS)
async def test_one_label_on_a_workload_equips_its_templates_and_pods(
    plane, controllers, nodes, namespace, installed, kind
):
    this = jobs.KINDS[kind]
    manifest = this.build("one")
    await nodes.make("gpu-0")
    await controllers.start(this.controller)
    created = await plane.api.create(on_the_object(manifest), namespace=namespace)
    before = templates(created["spec"])
    assert before, "the workload has templates"
    for template in before:
        computes = "nvidia.com/gpu" in template["spec"]["containers"][0].get("resources", {}).get("limits", {})
        assert template["metadata"]["labels"][FABRIC] == "ib"
        assert amounts(template["spec"]) == ({"1"} if computes else {"0"})
        assert "NCCL_IB_HCA" not in json.dumps(template), "the environment is the pods' own"
    for pod in await conditions.running(plane.api, namespace, this.selector("one"), this.pods):
        computes = "nvidia.com/gpu" in container(pod)["resources"].get("limits", {})
        assert amounts(pod["spec"]) == ({"1"} if computes else {"0"})
        assert INJECTION in pod["metadata"]["annotations"]
    name = f"{manifest['apiVersion']}/{kind}"
    after = await plane.api.get(name, "one", namespace)
    assert templates(after["spec"]) == before, "its controller's own updates change no template"
