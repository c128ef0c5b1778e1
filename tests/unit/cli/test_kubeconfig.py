"""Kubeconfigs of commands: where they are found, and the error with alternatives if there is none."""

import os
import re

import pytest

from railwright.cli import __main__ as railwright
from railwright.cli import cluster_access, output

COMMANDS = (("gangs",), ("fabric",), ("dashboard",), ("check",), ("certs", "rotate"), ("explain", "pod", "a/b"))


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_kubeconfig_a_command_names_only_options_that_it_has(nowhere, capsys, command):
    assert railwright.main(list(command)) == output.UNUSABLE
    stderr = capsys.readouterr().err
    assert "no kubeconfig" in stderr
    assert railwright.main([*command, "--help"]) == output.OK
    assert set(re.findall(r"--[a-z-]+", stderr)) <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_kubeconfigs_are_found_and_merged_as_by_kubectl(nowhere, monkeypatch, tmp_path):
    home = tmp_path / ".kube" / "config"
    home.parent.mkdir()
    home.touch()
    assert cluster_access.choose_kubeconfig("") == str(home)
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.touch()
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, [files[0], tmp_path / "gone", files[1]])))
    assert cluster_access.choose_kubeconfig("") == os.pathsep.join(map(str, files))
    assert cluster_access.choose_kubeconfig("given") == "given"


def test_without_a_kubeconfig_a_pod_uses_its_service_account(nowhere, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert cluster_access.choose_kubeconfig("") is None
