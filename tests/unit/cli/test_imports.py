"""Imports of the commands: a count that, unlike their speed, does not depend on the machine."""

import json
import subprocess
import sys

import pytest
from admitting import ROOT

DEMO = ROOT / "railwright" / "cli" / "demo"
PROGRAM = """
import json, sys
from railwright.cli.__main__ import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],
 clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: k, user: u}}]}
"""
# for servers; for invalid policies; for the client of kubernetes_asyncio and for accounts with a password
NEVER_NEEDED = ("prometheus_client", "jsonpatch", "jsonschema", "urllib3", "dateutil")
OURS = {"railwright", "webhook", "extender", "certs"}


def find_imports(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def find_libraries(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - OURS - {"__main__"}


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), ("check", "--help"), ("certs", "rotate", "--help"), ("__complete", "gangs", "--")],
    ids=" ".join,
)
def test_help_and_completion_import_no_library(words):
    modules = find_imports(*words)
    assert find_libraries(modules) == set()
    assert len(modules) < 170  # 140 with argparse


def test_the_help_of_a_command_imports_the_options_of_no_other():
    modules = find_imports("gangs", "--help")
    assert {name for name in modules if name.startswith("railwright.cli.commands.")} == {
        "railwright.cli.commands.gangs"
    }


def test_lint_without_a_policy_imports_no_validator_and_no_client():
    modules = find_imports("lint", str(DEMO / "job.yaml"))
    assert find_libraries(modules).isdisjoint({"rich", "jsonschema", "aiohttp", "cryptography", "kubernetes_asyncio"})
    assert len(modules) < 470


def test_a_valid_policy_is_read_from_a_file_without_validator_and_client():
    modules = find_imports("lint", str(DEMO / "job.yaml"), "--policy", str(DEMO / "policy.yaml"))
    assert "railwright.cluster.policies" in modules
    assert find_libraries(modules).isdisjoint({"jsonschema", "aiohttp"})


@pytest.mark.parametrize(
    ("words", "spared", "limit"),
    [
        (("check",), (), 660),
        (("gangs",), ("cryptography", "rich"), 620),
        (("fabric",), ("cryptography", "rich"), 620),
        (("version",), ("cryptography", "rich"), 480),
        (("verify", "manifest"), ("cryptography", "rich"), 500),
        (("explain", "pod", "a/b"), ("cryptography",), 490),
        (("certs", "rotate"), ("rich",), 510),
    ],
    ids=["check", "gangs", "fabric", "version", "verify manifest", "explain pod", "certs rotate"],
)
def test_a_command_against_a_cluster_imports_only_what_it_needs(words, spared, limit, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    modules = find_imports(*words, "--kubeconfig", str(path))
    assert find_libraries(modules).isdisjoint((*NEVER_NEEDED, *spared))
    assert "aiohttp" in modules
    assert len([name for name in modules if name.startswith("kubernetes_asyncio.client.models.")]) == 0
    assert len(modules) < limit  # 700 more with the library's model classes
