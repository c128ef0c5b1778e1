"""`railwright gangs` and `railwright fabric` over a snapshot, in every output format and width."""

import datetime as dt
import json
import re

import devices
import late_rails
import pytest
import terminals
import varied_clusters
import yaml
from hypothesis import given
from hypothesis import strategies as st

from railwright.cli import __main__ as command_line
from railwright.cli import formats


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return two spines of two leaves of four nodes, with one placed gang, one that lacks a node, and a dead rail."""
    folder = tmp_path_factory.mktemp("vista")
    vista = varied_clusters.Vista(2, 2, 4, gangs=0, waiting=0)
    vista.add_gang(8, name="llama", namespace="prod", placed=8)
    vista.add_gang(12, name="a-gang-whose-name-is-long-enough-to-hurt", namespace="research", placed=0)
    dead = vista.nodes[-1]
    dead["status"] = {
        **dead["status"],
        "allocatable": {**dead["status"]["allocatable"], varied_clusters.RESOURCES[3]: "0"},
    }
    vista.write(folder)
    return folder


def locate(folder) -> tuple[str, ...]:
    """Return the options for the policy and snapshot of a folder."""
    return ("--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json"))


@pytest.fixture
def view(cluster, capsys):
    def view(command: str, *options: str) -> tuple[int, str, str]:
        code = command_line.main([command, *locate(cluster), *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return view


# --- gangs ------------------------------------------------------------------------------------------------


def test_each_gang_is_printed_with_its_size_placement_bandwidth_and_reason(view):
    code, out, _ = view("gangs", "-o", "wide")
    head, placed, waiting = out.splitlines()
    assert code == 0, "one waits"
    assert head.split() == ["NAMESPACE", "GANG", "STATE", "PLACED", "LEAVES", "BANDWIDTH", "AGE", "FABRIC", "WHY"]
    assert placed.split()[:3] == ["prod", "llama", "spread"]
    assert "8/8" in placed
    assert waiting.split()[:4] == ["research", "a-gang-whose-name-is-long-enough-to-hurt", "waiting", "0/12"]
    assert "12 pods remain" in waiting


def test_the_command_gangs_filters_by_namespace_and_by_the_state_waiting(view):
    code, out, _ = view("gangs", "-n", "prod")
    assert (code, len(out.splitlines())) == (0, 2)
    waiting = view("gangs", "--waiting")[1].splitlines()
    assert [line.split()[0] for line in waiting] == ["NAMESPACE", "research"]
    assert view("gangs", "-n", "nowhere")[:2] == (
        0,
        "no gangs of opted-in pods in namespace nowhere; there are gangs in prod, research\n",
    )
    assert "and -A exclude each other" in view("gangs", "-n", "prod", "-A")[2]


def test_the_json_and_the_yaml_of_gangs_are_equal_and_list_every_rank(view):
    document = json.loads(view("gangs", "-o", "json")[1])
    assert [(gang["key"], len(gang["ranks"])) for gang in document] == [
        ("prod/llama", 8),
        ("research/a-gang-whose-name-is-long-enough-to-hurt", 12),
    ]
    assert yaml.safe_load(view("gangs", "-o", "yaml")[1]) == document


@pytest.mark.parametrize(("leaf", "is_listed"), [(4, True), (20, False)])
def test_nodes_of_a_large_fabric_are_listed_only_in_the_wide_format(tmp_path, capsys, leaf, is_listed):
    varied_clusters.Vista(2, 2, leaf, gangs=0, waiting=0).write(tmp_path)
    command_line.main(["fabric", *locate(tmp_path)])
    assert ("    gpu-" in capsys.readouterr().out) is is_listed
    command_line.main(["fabric", *locate(tmp_path), "-o", "wide"])
    assert capsys.readouterr().out.count("    gpu-") == 4 * leaf


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_on_a_terminal_the_last_column_is_cut_and_names_stay_whole(cluster, columns):
    code, output = terminals.run(["gangs", *locate(cluster)], columns, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    assert code == 0
    assert len(lines) == 3, output
    assert "a-gang-whose-name-is-long-enough-to-hurt" in lines[2]
    assert all(len(line) <= max(columns, 106) for line in lines), "only the last column is cut, to 12 characters"
    assert ("12 pods remain" in lines[2]) is (columns == 200)


def test_colours_are_printed_only_on_terminals_that_allow_them(cluster):
    yellow_or_red = re.compile(r"\x1b\[(?:1;)?3[13]m")
    assert yellow_or_red.search(terminals.run(["gangs", *locate(cluster)], 120)[1])
    assert not yellow_or_red.search(terminals.run(["gangs", *locate(cluster)], 120, NO_COLOR="1")[1])


# --- fabric -----------------------------------------------------------------------------------------------


def test_the_fabric_is_a_tree_of_spines_leaves_and_nodes_with_their_rails(view):
    code, out, _ = view("fabric")
    lines = out.splitlines()
    assert code == 1, "a rail is dead"
    assert lines[0] == "roce roce, 16 nodes, 8 rails: 63 free, 64 busy, 1 dead"
    assert [line for line in lines if line.startswith("spine")] == ["spine-0", "spine-1"]
    assert sum(line.startswith("  leaf-") for line in lines) == 4
    assert sum(line.startswith("    gpu-") for line in lines) == 16
    assert any(line.split()[1] == "fffdffff" for line in lines if line.startswith("    gpu-"))
    assert any("bbbbbbbb" in line and "prod/llama-worker-0" in line for line in lines)


def test_the_command_fabric_with_option_dead_shows_only_broken_nodes(view):
    rows = [line for line in view("fabric", "--dead")[1].splitlines() if line.startswith("    ")]
    assert len(rows) == 2
    assert "cordoned or not ready" in rows[0]
    assert "fffdffff" in rows[1]


CLAIMS = """\
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    claims: {deviceClass: dranet}
    rails: [{name: rail0, device: rdmap16s27}, {name: rail1, device: rdmap32s27}]
"""


def test_the_command_fabric_reports_a_policy_without_rails(view, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: railwright.io/v1alpha1\nfabrics: {t: {transport: tcp}}\n")
    assert view("fabric", "--policy", str(policy))[:2] == (0, "the policy defines no fabric with rails\n")


def test_claimed_rails_are_shown_with_their_device_class(tmp_path, capsys):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-0"}, "status": {}}
    slices = devices.build_slices("gpu-0", taints={"pci-0000-20-1b-0": "NoSchedule"})
    items = [node, devices.build_class("dranet", 'device.driver == "dra.net"'), *slices]
    (tmp_path / "snapshot.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "policy.yaml").write_text(CLAIMS)
    assert command_line.main(["fabric", *locate(tmp_path)]) == 1, "a rail is tainted"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "roce roce, 1 node, 2 rails by claims of DeviceClass dranet: 1 free, 0 busy, 1 dead"
    assert any("gpu-0" in line and line.split()[1] == "fd" for line in lines)


def test_rails_that_the_allocator_chose_are_read_from_the_claims(tmp_path, capsys):
    late_rails.write(tmp_path)
    assert command_line.main(["gangs", *locate(tmp_path), "-o", "json"]) == 0
    [gang] = json.loads(capsys.readouterr().out)
    assert "why" not in gang, "the first rails are busy on a node, but the pods have others"
    assert gang["ranks"][0]["rails"][0] == {"rail": "rail1", "device": devices.RDMA_DEVICES[1]}
    assert command_line.main(["fabric", *locate(tmp_path), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    nodes = {node["name"]: node for leaf in document["leaves"].values() for node in leaf["nodes"]}
    assert [nodes[name]["rails"] for name in ("n1", "n2")] == ["fbfb", "bfbf"]
    assert [pod["rails"] for pod in nodes["n1"]["pods"]] == [[1, 3]]
    assert "rail_notes" not in nodes["n1"]


# --- tables in any width --------------------------------------------------------------------------------------


COLUMNS = (
    formats.Column("NAMESPACE"),
    formats.Column("GANG"),
    formats.Column("PLACED", right=True),
    formats.Column("FABRIC"),
    formats.Column("WHY", cut=True),
)


def test_a_wrapped_cell_continues_in_its_own_column():
    columns = [formats.Column("GANG"), formats.Column("WHY", wrap=True)]
    lines = formats.format_table(columns, [("a-gang-of-some-length", "eight pods remain, and nothing is free")], 41)
    assert lines[1] == f"a-gang-of-some-length  eight pods remain,\n{' ' * 23}and nothing is\n{' ' * 23}free"


def test_a_cell_that_leaves_no_space_for_a_wrapped_column_has_its_own_line():
    columns = [formats.Column("CHANGE"), formats.Column("WHY", wrap=True)]
    rows = [("mount " + "p" * 60, "eight words of text"), ("env A", "short")]
    lines = formats.format_table(columns, rows, 30)
    assert lines[1:] == [f"{rows[0][0]}\n{' ' * 22}eight words\n{' ' * 22}of text", f"{'env A':22}short"]


WORDS = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS), max_size=6), st.integers(1, 150))
def test_names_are_not_truncated_at_any_width(rows, limit):
    lines = formats.format_table(COLUMNS, rows, limit)
    assert len(lines) == 1 + len(rows)
    for line, row in zip(lines[1:], rows, strict=True):
        assert all(name in line for name in row[:-1])
    before = sum(
        2 + max([len(column.title), *(len(row[at]) for row in rows)]) for at, column in enumerate(COLUMNS[:-1])
    )
    assert all(len(line) <= max(limit, before + 12) for line in lines)


NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (330, "5m"), (7200 - 1, "119m"), (3 * 3600 + 1200, "3h"),
        (49 * 3600, "2d"), (800 * 86400, "800d"), (-5, "0s"),
    ],
)  # fmt: skip
def test_an_age_has_the_largest_unit_with_a_count_of_two_or_more(seconds, text):
    assert formats.format_age((NOW - dt.timedelta(seconds=seconds)).isoformat(), NOW) == text
