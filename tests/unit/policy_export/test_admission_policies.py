"""The export of a policy as MutatingAdmissionPolicies: what is expressed, and what is said not to be.

tests/integration/test_exported_policy.py compares the pods.
"""

import admitting
import pytest
import yaml

from railwright.cli import __main__ as command_line
from railwright.fabric.injection import pod_changes
from railwright.fabric.policy_export import admission_policies, situations

EXPRESSED = {
    pod_changes.SetAnnotation,
    pod_changes.SetField,
    pod_changes.AddToleration,
    pod_changes.AddVolume,
    pod_changes.AddResource,
    pod_changes.AddMount,
    pod_changes.AddCapability,
    pod_changes.SetPrivileged,
    pod_changes.SetEnv,
}
LITERAL = "[{name: rail0, resource: example.com/a, device: mlx5_0}]"
SHAPES = """nodeShapes:
- {name: a, match: {gpu: a}, devices: {rail0: mlx5_0}}
- {name: b, match: {gpu: b}, devices: {rail0: mlx5_2}}"""
GAPS = {  # of fabrics that are left out: lines of the fabric, rails, lines at the top, path, value
    "networks": ("", admitting.RAILS, "", "fabrics.f.rails[0].network", "prod/lan2"),
    "claims": (
        "    claims: {deviceClass: nics}\n",
        "[{name: rail0, device: mlx5_0}]",
        "",
        "fabrics.f.claims.deviceClass",
        "nics",
    ),
    "whole nodes": ("    gpusPerNode: 8\n    wholeNode: true\n", LITERAL, "", "fabrics.f.wholeNode", "set"),
    "networks of another system": (
        "    networkAnnotation: {key: a.b/c, item: {n: x}}\n",
        LITERAL,
        "",
        "fabrics.f.networkAnnotation",
        "set",
    ),
    "library path": ("    libraryPath: {directories: [/a]}\n", LITERAL, "", "fabrics.f.libraryPath", "set"),
    "script": ("    sourceScript: {path: /a}\n", LITERAL, "", "fabrics.f.sourceScript", "set"),
    "sidecars": ("    sidecars: [{name: d, image: i}]\n", LITERAL, "", "fabrics.f.sidecars", "set"),
    "audit of all": ("", LITERAL, "mode: audit", "mode", "audit"),
    "audit": ("    mode: audit\n", LITERAL, "", "fabrics.f.mode", "audit"),
    "proportional": (
        "    railsPerPod: proportional\n    gpusPerNode: 8\n",
        LITERAL,
        "",
        "fabrics.f.railsPerPod",
        "proportional",
    ),
    "node shapes": (
        "",
        "[{name: rail0, resource: example.com/a}]",
        SHAPES,
        "nodeShapes",
        "a, b",
    ),
}


def list_kinds(kind: type) -> set[type]:
    """Return the kinds of change that are made: those without a kind of their own below them, and SetAnnotation."""
    below = kind.__subclasses__()
    return {kind, *()} if not below else set().union(*map(list_kinds, below))


def test_each_kind_of_change_is_expressed_or_said_not_to_be():
    kinds = list_kinds(pod_changes.Change) | {pod_changes.SetAnnotation}
    assert kinds == EXPRESSED | admission_policies.INEXPRESSIBLE.keys()
    assert EXPRESSED.isdisjoint(admission_policies.INEXPRESSIBLE)


@pytest.mark.parametrize("name", GAPS)
def test_what_cannot_be_expressed_is_named_with_its_key_and_value(name):
    more, rails, top, path, value = GAPS[name]
    exported = admission_policies.export(admitting.fabric(more, rails=rails, top=top))
    assert [(gap.path, gap.value, gap.is_left_out) for gap in exported.gaps] == [(path, value, True)]
    assert not exported.objects


def test_a_fabric_of_which_little_cannot_be_expressed_is_exported():
    more = "    namespaces: {matchLabels: {team: vision}}\n    preflight: {enabled: true}\n"
    roles = "roles: {launchers: never, volcanoTasks: {master: always}}"
    exported = admission_policies.export(admitting.fabric(more, rails=LITERAL, top=roles))
    assert {(gap.path, gap.value, gap.is_left_out) for gap in exported.gaps} == {
        ("roles.launchers", "never", False),
        ("roles.volcanoTasks.master", "always", False),
        ("fabrics.f.namespaces", "team", False),
        ("fabrics.f.preflight.enabled", "true", False),
    }
    assert exported.objects


def test_a_change_has_the_condition_that_its_situations_have_in_common():
    changes = situations.explore(
        admitting.fabric(
            "    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 64Gi}\n"
            "    env: {A: b}\n    forceEnv: [A]\n",
            rails=LITERAL,
        ),
        "f",
    )
    conditions = {change.change.entry: change.conditions for change in changes}
    assert conditions["devices"] == ()
    assert conditions["env.A"] == ()  # forced, so it overrides envFrom too
    own_network, without_env_from = "!variables.hostNetwork", "!(c.name in variables.withEnvFrom)"
    assert conditions["env.NCCL_SOCKET_IFNAME"] == (own_network, without_env_from)
    assert conditions["security.IPC_LOCK"] == ("variables.podSecurity == 'privileged'",)
    assert conditions["mounts./dev/shm"] == ("!variables.hostIPC", "!(c.name in variables.withHostDev)")
    assert conditions["nccl.conf"] == ("c.name in variables.withEnvFrom",)


def test_situations_that_are_no_combination_are_inseparable(monkeypatch):
    """A change that is made in either of two situations, each of another dimension."""
    planned = situations._plan

    def plan(policy, name, situation):
        either = situation[1] != situation[2]
        return planned(policy, name, situation if either else tuple([0] * len(situation)))

    monkeypatch.setattr(situations, "_plan", plan)
    (gap,) = admission_policies.export(admitting.fabric(rails=LITERAL)).gaps
    assert (gap.path, gap.is_left_out) == ("fabrics.f", True)


def test_names_of_objects_are_valid_and_different():
    fabrics = "\n".join(f"  {name}: {{transport: tcp}}" for name in ("A_b", "a_b", "a.b"))
    head = "apiVersion: railwright.io/v1alpha1\nfabrics:\n"
    objects = admission_policies.export(admitting.policy(f"{head}{fabrics}")).objects
    names = [tree["metadata"]["name"] for tree in objects if tree["kind"] == "MutatingAdmissionPolicy"]
    assert len({*names}) == 3
    assert all(name == name.lower() and "_" not in name and "." not in name for name in names)


def run(capsys, tmp_path, text: str) -> tuple[int, str, str]:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    code = command_line.main(["policy", "export", str(path), "--as", "mutatingadmissionpolicy"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


HEAD = "apiVersion: railwright.io/v1alpha1\nfabrics:\n"


def test_the_command_prints_objects_and_names_what_is_left_out(capsys, tmp_path):
    literal = f"  ib: {{transport: infiniband, rails: {LITERAL}}}\n"
    networks = "  roce: {transport: roce, rails: [{name: r, network: prod/lan2, device: mlx5_0}]}\n"
    code, out, err = run(capsys, tmp_path, HEAD + literal)
    assert (code, err) == (0, "")
    assert {tree["kind"] for tree in yaml.safe_load_all(out)} == {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    assert "# - Pods get no record" in out
    code, out, err = run(capsys, tmp_path, HEAD + literal + networks)
    assert code == 1
    line = "fabrics.roce.rails[0].network: prod/lan2: no expression merges"
    assert line in err
    assert f"# - {line}" in out
    assert "the fabric is left out: install the webhook" in err
    assert "railwright-export-ib" in out
    assert "railwright-export-roce" not in out
    code, out, _ = run(capsys, tmp_path, HEAD + networks)
    assert (code, [*yaml.safe_load_all(out)]) == (1, [])
