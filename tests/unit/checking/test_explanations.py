"""The explanation of each row: its example is real output, and it needs no cluster and no network."""

import re
import sys

import broken_installations
import installations
import pytest
import shapes

from documentation import tested_versions
from railwright.cli import checking
from railwright.cli.__main__ import main
from railwright.cli.checking import check_rows, command, installation, permissions, snapshots
from railwright.fabric import names
from railwright.fabric.claims import drivers

SECTIONS = {anchor: fields["text"] for anchor, fields in check_rows.read_fields().items()}
ROWS = {row.anchor: row for row in command.ROWS}


def list_breaks():
    """Yield what the command prints of every broken cluster."""
    for change, _, _, _ in broken_installations.BREAKS.values():
        trees = installations.healthy()
        change(trees)
        yield from broken_installations.assess_trees(trees)
    sentence = (
        "nothing listens at https://10.0.0.1:6443; start the cluster or its tunnel, or choose another context or "
        "kubeconfig"
    )
    unread = {source.name: sentence for source in snapshots.SOURCES}
    yield from broken_installations.run_checks(snapshots.Snapshot(names.NAMESPACE, installations.NOW, unread=unread))
    healthy = installations.healthy
    yield from broken_installations.assess_trees(healthy(), forbidden=("list nodes -A",))
    refusal = 'Internal error occurred: failed calling webhook "pods.railwright.io": connection refused'
    dry_run = snapshots.DryRun("roce", "default", refusal=refusal)
    yield from broken_installations.assess_trees({**healthy(), "dry-runs": [dry_run]})
    pod = {"metadata": {"annotations": {names.INJECTION: '{"policy": "sha256:2c1f9a04"}'}}}
    dry_run = snapshots.DryRun("roce", "default", pod=pod)
    yield from broken_installations.assess_trees({**healthy(), "dry-runs": [dry_run]})
    trees = healthy()
    trees["networks"].clear()
    yield from broken_installations.assess_trees(trees, unknown=frozenset({"networks"}))
    trees = healthy()
    trees["topologies"].clear()
    text = trees["policy"][0]["data"][names.POLICY_KEY]
    trees["policy"][0]["data"][names.POLICY_KEY] = text[: text.index("  numa:\n  -")]
    yield from broken_installations.assess_trees(trees)
    trees = healthy()
    broken_installations.drop("deployments", broken_installations.EXTENDER)(trees)
    trees["version"][0] = {"gitVersion": "v1.31.4"}
    yield from broken_installations.assess_trees(trees)
    trees["permissions"] = [(item, item.resource != "clusterroles") for item in permissions.TO_INSTALL]
    for node in trees["nodes"]:
        node["status"] = {}
    yield from broken_installations.assess_trees(trees, before=True, unknown=frozenset({"queues"}))


@pytest.fixture(scope="module")
def printed():
    """Texts that rows print if they do not pass."""
    texts = {}
    for result in list_breaks():
        lines = ["".join(text for text, _ in line) for line in check_rows.format_row(result)]
        if result.state is not check_rows.State.OK:
            shown = [line for line in lines if not line.startswith("    see: ")]
            texts.setdefault(result.check, set()).add("\n".join(shown))
    return texts


def test_every_row_of_the_table_is_assessed_and_every_function_has_a_row():
    assert set(SECTIONS) == set(command.CHECKS)


def test_every_row_reads_known_sources_and_follows_earlier_rows():
    sources = {source.name for source in snapshots.SOURCES}
    derived = (snapshots.DRY_RUNS, snapshots.NAMESPACED_PODS, snapshots.PERMISSIONS, snapshots.SERVER_PERMISSIONS)
    known = {*sources, *derived}
    earlier = set()
    for row in ROWS.values():
        assert {*row.reads, *row.uses} <= known, row.anchor
        assert set(row.depends_on) <= earlier, row.anchor
        assert "{" not in re.sub(r"\{apply[^}]*\}", "", row.hint).replace(check_rows.EDIT_POLICY, "").replace(
            "{namespace}", ""
        ).replace("{key: ", ""), row.anchor
        earlier.add(row.anchor)


@pytest.mark.parametrize("anchor", ROWS)
def test_the_example_is_the_output_of_the_command(anchor, printed):
    [example] = re.findall(r"^```text\n(.*?)\n```$", SECTIONS[anchor], re.MULTILINE | re.DOTALL)
    assert example in printed[anchor], printed[anchor]


@pytest.mark.parametrize("anchor", ROWS)
def test_an_explanation_is_printed_without_a_cluster_or_a_network(anchor, capsys, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert main(["check", "--explain", anchor]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{anchor}: {ROWS[anchor].name}\n")
    assert "fix: " in out or "    - " in out
    assert not re.search(r"```|<!--|\]\(|//(?!railwright-|10\.0\.0\.1)", out), "no marks, and no link of another's"


def test_an_explanation_does_not_wait_for_the_checks_to_be_imported(monkeypatch):
    monkeypatch.delattr(checking, "command")
    monkeypatch.setitem(sys.modules, command.__name__, None)  # an import of it fails
    assert main(["check", "--explain", "versions"]) == 0


def test_without_a_name_all_rows_are_listed_and_a_misspelt_name_gets_a_suggestion(capsys):
    assert main(["check", "--explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ROWS)
    assert main(["check", "--explain", "rail-network"]) == 2
    assert (
        capsys.readouterr().err == "railwright: --explain: there is no row rail-network; did you mean rail-networks?\n"
    )
    assert main(["check", "--explain", "?"]) == 2
    assert "to list all: railwright check --explain" in capsys.readouterr().err


def test_the_tested_drivers_are_those_of_the_slices_in_the_tests(capsys):
    assert main(["check", "--explain", "claim-drivers"]) == 0
    stdout = capsys.readouterr().out
    names_of_nodes = {shape.title for shape in map(shapes.load, shapes.NAMES)}
    for driver, releases in drivers.TESTED_SLICES.items():
        assert driver in stdout
        assert all(release in stdout for release in releases)
    assert all(title in stdout for title in names_of_nodes)
    slices = [tree for name in shapes.NAMES for tree in shapes.load(name).build_slices("n")]
    assert {tree["spec"]["driver"] for tree in slices} == set(drivers.TESTED_SLICES)


def test_a_driver_without_tested_slices_is_named_and_no_driver_is_ticked():
    trees = installations.healthy()
    installations.add_claims(trees)
    trees["device-slices"][0]["spec"]["driver"] = "nic.example.com"
    [result] = [row for row in broken_installations.assess_trees(trees) if row.check == "claim-drivers"]
    assert result.state is check_rows.State.SKIP
    assert "nic.example.com on 1 node (not tested)" in result.detail
    assert "gpu.nvidia.com on 3 nodes (tested with slices of" in result.detail


def test_the_tested_versions_are_those_that_the_tests_build(capsys):
    assert installation.read_tested_versions() == tested_versions.read_versions()
    pins = "".join(path.read_text() for path in (installations.ROOT / "tests").rglob("go.mod"))
    assert main(["check", "--explain", "versions"]) == 0
    stdout = capsys.readouterr().out
    for name, versions in tested_versions.read_versions().items():
        assert all(f" {version} " in pins or f" {version}\n" in pins for version in versions)
        assert re.search(rf"^    {re.escape(name)} +{re.escape(', '.join(versions))}$", stdout, re.MULTILINE)
