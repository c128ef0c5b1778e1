"""The job of `railwright verify manifest`: our webhook injects it as expected, and the command creates nothing."""

import json

import pytest
import yaml
from admitting import EXAMPLES

from railwright.cli import __main__ as command_line
from railwright.cli import commands, object_files
from railwright.cli.explanation import previews, templates
from railwright.cluster import policies
from railwright.fabric import names
from railwright.fabric.verification import jobs

SITES = {
    "360-roce": "roce-derived",
    "360-infiniband": "",
    "vivo-roce": "",
    "sriov-8-rail": "",
    "pvrdma-mpi": "pvrdma",
    "ack-erdma": "",
}


def policy_of(site):
    result = policies.read((EXAMPLES / site / "policy.yaml").read_text())
    assert not isinstance(result, policies.Rejected)
    return result


def print_job(capsys, *arguments: str) -> tuple[int, list[dict]]:
    code = command_line.main(["verify", "manifest", *arguments])
    return code, [*yaml.safe_load_all(capsys.readouterr().out)]


@pytest.mark.parametrize("kind", jobs.JOBS)
@pytest.mark.parametrize("site", SITES)
def test_every_pod_of_the_job_gets_all_rails_of_its_fabric_and_says_which_network_it_takes(site, kind, capsys):
    policy = policy_of(site)
    fabric = SITES[site] or policy.document.default_fabric or next(iter(policy.document.fabrics))
    code, trees = print_job(
        capsys,
        "--policy",
        str(EXAMPLES / site / "policy.yaml"),
        "--fabric",
        fabric,
        "--kind",
        kind,
        "--nodes",
        "3",
        "-n",
        "prod",
    )
    assert code == 0
    caches = previews.load_caches(None)
    text = yaml.safe_dump_all(trees)
    templates_of_job = [
        template
        for tree in object_files.read_manifest(text, "job")
        for template in templates.expand(tree, "prod") or ()
    ]
    accounts = [previews.preview_admission(template, policy, caches) for template in templates_of_job]
    assert all(account.outcome != "refused" for account in accounts), [account.message for account in accounts]
    gpus = policy.document.fabrics[fabric].gpus_per_node or 8
    rails = [rail.name for rail in policy.document.fabrics[fabric].rails]
    injected = [account for account in accounts if account.rails]
    assert sum(account.pods or 0 for account in injected) == 3
    for preview in injected:
        (container,) = preview.after["spec"]["containers"]
        assert list(preview.rails) == rails
        assert container["resources"]["limits"]["nvidia.com/gpu"] == str(gpus)
    said = [
        {e["name"]: e.get("value") for e in c.get("env", [])}
        for account in accounts
        for c in account.after["spec"]["containers"]
    ]
    assert any(env.get("NCCL_DEBUG") == "INFO" and env.get("NCCL_DEBUG_SUBSYS") == "INIT,NET" for env in said)
    assert "NCCL_IB_HCA" not in text, "what the fabric needs is admission's to add"


def test_mpirun_forwards_the_logging_variables(capsys):
    _, (job,) = print_job(capsys, "--policy", str(EXAMPLES / "pvrdma-mpi" / "policy.yaml"), "--fabric", "pvrdma")
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    words = launcher["command"]
    assert {words[at + 1] for at, word in enumerate(words) if word == "-x"} >= {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"}
    assert "--tag-output" in words


def test_the_label_is_the_only_network_setting_of_the_manifest(capsys):
    _, (job,) = print_job(capsys, "--policy", str(EXAMPLES / "360-roce" / "policy.yaml"), "--kind", "volcano")
    (label,) = {tuple(task["template"]["metadata"]["labels"].items()) for task in job["spec"]["tasks"]}
    assert label == ((names.FABRIC, "roce-derived"),)


def test_the_program_of_the_torch_jobs_compiles():
    compile(jobs._TORCH, "program", "exec")  # what a pod would run


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--nodes", "0"), "--nodes 0: must be 1 or more"),
        (("--fabric", "x"), "--fabric x: not defined in the policy (defined: roce, roce-derived)"),
    ],
)
def test_impossible_jobs_are_refused_with_the_possible_ones(options, expected, capsys):
    code = command_line.main(["verify", "manifest", "--policy", str(EXAMPLES / "360-roce" / "policy.yaml"), *options])
    assert (code, expected in capsys.readouterr().err) == (2, True)


def test_the_job_is_in_the_namespace_of_the_context_where_verify_looks_for_it(tmp_path, capsys):
    kubeconfig = tmp_path / "kubeconfig"
    contexts = [{"name": "c", "context": {"namespace": "prod"}}]
    kubeconfig.write_text(json.dumps({"current-context": "c", "contexts": contexts}))
    options = ["--policy", str(EXAMPLES / "360-roce" / "policy.yaml"), "--kubeconfig", str(kubeconfig)]
    assert {tree["metadata"]["namespace"] for tree in print_job(capsys, *options)[1]} == {"prod"}
    assert {tree["metadata"]["namespace"] for tree in print_job(capsys, *options, "-n", "x")[1]} == {"x"}


def test_the_manifest_is_a_list_in_json(capsys):
    command_line.main(
        ["verify", "manifest", "--policy", str(EXAMPLES / "360-roce" / "policy.yaml"), "--kind", "job", "-o", "json"]
    )
    assert [item["kind"] for item in json.loads(capsys.readouterr().out)["items"]] == ["Service", "Job"]


def test_the_command_offers_the_kinds_that_the_frameworks_have():
    assert sorted(commands.KINDS) == sorted(jobs.JOBS)
