"""`railwright check --explain` needs no cluster, lists the rows, and names what the tests have tried."""

import re
import sys

import installations
import shapes

from documentation import tested_versions
from railwright.cli import checking
from railwright.cli.__main__ import main
from railwright.cli.checking import command, installation
from railwright.fabric.claims import drivers


def test_a_row_is_explained_without_a_cluster_and_without_an_import_of_the_checks(monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.delattr(checking, "command")
    monkeypatch.setitem(sys.modules, command.__name__, None)  # an import of it fails
    assert main(["check", "--explain", "webhook-budget"]) == 0
    stdout = capsys.readouterr().out
    assert stdout.startswith("webhook-budget: ")
    assert "fix: " in stdout


def test_without_a_name_all_rows_are_listed_and_a_misspelt_name_gets_a_suggestion(capsys):
    assert main(["check", "--explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [row.anchor for row in command.ROWS]
    assert main(["check", "--explain", "rail-network"]) == 2
    assert (
        capsys.readouterr().err == "railwright: --explain: there is no row rail-network; did you mean rail-networks?\n"
    )
    assert main(["check", "--explain", "?"]) == 2
    assert "to list all: railwright check --explain" in capsys.readouterr().err


def test_the_tested_drivers_are_those_of_the_slices_in_the_tests(capsys):
    assert main(["check", "--explain", "claim-drivers"]) == 0
    stdout = capsys.readouterr().out
    for driver, releases in drivers.TESTED_SLICES.items():
        assert driver in stdout
        assert all(release in stdout for release in releases)
    assert all(shapes.load(name).title in stdout for name in shapes.NAMES)
    slices = [tree for name in shapes.NAMES for tree in shapes.load(name).build_slices("n")]
    assert {tree["spec"]["driver"] for tree in slices} == set(drivers.TESTED_SLICES)


def test_the_tested_versions_are_those_that_the_tests_build(capsys):
    assert installation.read_tested_versions() == tested_versions.read_versions()
    pins = "".join(path.read_text() for path in (installations.ROOT / "tests").rglob("go.mod"))
    assert main(["check", "--explain", "versions"]) == 0
    stdout = capsys.readouterr().out
    for name, versions in tested_versions.read_versions().items():
        assert all(f" {version} " in pins or f" {version}\n" in pins for version in versions)
        assert re.search(rf"^    {re.escape(name)} +{re.escape(', '.join(versions))}$", stdout, re.MULTILINE)
