"""`railwright check --explain` needs no cluster, lists the rows, and names the tested versions."""

import installations
import shapes

from documentation import reference
from railwright.cli.__main__ import main
from railwright.cli.checking import command


def test_a_row_is_explained_without_a_cluster(monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert main(["check", "--explain", "webhook-entries"]) == 0
    stdout = capsys.readouterr().out
    title = "webhook-entries: Webhook configurations exist, and their entries are those of this release"
    assert stdout.startswith(f"{title}\n\nCompares each entry")
    assert "\n- failurePolicy: Ignore lets opted-in pods run over TCP" in stdout
    assert "\n\nFix: apply the webhook configurations again: kubectl apply -k FOLDER" in stdout


def test_without_a_name_all_rows_are_listed_and_a_misspelt_name_gets_a_suggestion(capsys):
    assert main(["check", "--explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(command.ROWS)
    assert main(["check", "--explain", "rail-network"]) == 2
    assert (
        capsys.readouterr().err == "railwright: --explain: there is no row rail-network; did you mean rail-networks?\n"
    )
    assert main(["check", "--explain", "?"]) == 2
    assert "to list all: railwright check --explain" in capsys.readouterr().err


def test_the_tested_drivers_are_those_of_the_slices_in_the_tests():
    table = (installations.ROOT / "docs" / "dynamic-resource-allocation.md").read_text()
    assert all(shapes.load(name).title in table for name in shapes.NAMES)
    slices = [tree for name in shapes.NAMES for tree in shapes.load(name).build_slices("n")]
    assert all(f"`{tree['spec']['driver']}`" in table for tree in slices)


def test_the_tested_versions_are_those_that_the_tests_build():
    pins = "".join(path.read_text() for path in (installations.ROOT / "tests").rglob("go.mod"))
    for versions in reference.read_versions().values():
        assert all(f" {version} " in pins or f" {version}\n" in pins for version in versions)
