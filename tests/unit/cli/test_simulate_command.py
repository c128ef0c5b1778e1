"""The command `simulate`: what it prints, draws and refuses."""

import json
import os
import pathlib
import re
import subprocess
import sys

import msgspec
import pytest
import terminals
import yaml

from railwright.cli import __main__ as command_line
from railwright.cli import output, simulation
from railwright.fabric.policy import model
from railwright.simulator import cluster_specs

ROOT = pathlib.Path(__file__).parents[3]
QUICK = ["simulate", "--shape", "superpod-2", "--jobs", "40", "--oversubscription", "7"]


def test_the_output_says_modelled_and_names_every_placement_policy(capsys):
    assert command_line.main(QUICK) == output.OK
    captured = capsys.readouterr()
    assert "Modelled, not measured" in captured.out
    for name in ("no extender", "binpack", "greedy", "railwright", "exact optimum", "oversubscription 7:1, 7:1"):
        assert name in captured.out


def test_json_has_the_figures_of_each_policy(capsys):
    assert command_line.main([*QUICK, "--policies", "none,optimum", "-o", "json", "--scheduler", "kube"]) == output.OK
    document = json.loads(capsys.readouterr().out)
    assert document["modelled"] is True
    assert document["scheduler"] == "kube"
    assert list(document["policies"]) == ["none", "optimum"]
    assert document["policies"]["optimum"]["modelled_busbw_of_optimum"] == 1.0
    assert document["policies"]["none"]["jobs"] == 40


def test_parameters_and_shapes_come_with_their_sources(capsys):
    assert command_line.main(["simulate", "--parameters", "-o", "json"]) == output.OK
    assert all(row["source"] for row in json.loads(capsys.readouterr().out))
    assert command_line.main(["simulate", "--parameters"]) == output.OK
    assert "google/dranet" in capsys.readouterr().out
    assert command_line.main(["simulate", "--shapes", "-o", "json"]) == output.OK
    assert {row["name"]: row["nodes"] for row in json.loads(capsys.readouterr().out)}["lingjun"] == 847
    assert command_line.main(["simulate", "--shapes"]) == output.OK


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--shape", "x"], "--shape x: not one of superpod-2"),
        (["--stream", "x"], "--stream x: not one of seren"),
        (["--policies", "none,x"], "give some of none, binpack"),
        (["--policies", ","], "give some of none, binpack"),
        (["--load", "0"], "--load 0: must be a number above 0"),
        (["--load", "nan"], "--load nan"),
        (["--oversubscription", "7,x"], "--oversubscription x: must be a number above 0 such as 7 or 1,7"),
        (["--jobs", "0"], "--jobs 0"),
        (["--days", "-1"], "--days -1"),
        (["--days", "0.0000001"], "no job arrives within --days"),
        (["--nodes", "nowhere.yaml"], "needs --policy"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_with_its_value(options, word, capsys):
    assert command_line.main(["simulate", *options]) == output.UNUSABLE
    assert word in capsys.readouterr().err


def a_cluster(folder, count):
    shape = cluster_specs.Shape({"a": (count,)}, 8, {cluster_specs.POOL: 8}, "a test", product="8x8")
    (folder / "nodes.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [*cluster_specs.build_nodes(shape)]})
    )
    document = msgspec.to_builtins(msgspec.convert(cluster_specs.build_policy(mixed=False), model.PolicyDocument))
    (folder / "policy.yaml").write_text(yaml.safe_dump(without_defaults(document)))
    return ["--nodes", str(folder / "nodes.json"), "--policy", str(folder / "policy.yaml")]


def without_defaults(document):
    fabric = document["fabrics"][cluster_specs.FABRIC]
    compared = {key: fabric[key] for key in ("transport", "railsPerPod", "gpusPerNode")}
    compared["rails"] = [{"name": rail["name"], "resource": rail["resource"]} for rail in fabric["rails"]]
    compared["placement"] = {"domains": list(fabric["placement"]["domains"])}
    return {key: document[key] for key in ("apiVersion", "kind", "defaultFabric")} | {
        "fabrics": {cluster_specs.FABRIC: compared}
    }


def test_a_real_clusters_nodes_are_read_from_a_file(tmp_path, capsys):
    options = [*a_cluster(tmp_path, 4), "--jobs", "20", "-o", "json"]
    assert command_line.main(["simulate", *options]) == output.OK
    document = json.loads(capsys.readouterr().out)
    assert document["site"]["nodes"] == 4
    assert str(tmp_path / "nodes.json") in document["site"]["source"]


def test_files_without_a_cluster_are_refused(tmp_path, capsys):
    options = a_cluster(tmp_path, 4)
    (tmp_path / "nodes.json").write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    assert command_line.main(["simulate", *options]) == output.UNUSABLE
    assert "contains no Node" in capsys.readouterr().err
    (tmp_path / "policy.yaml").write_text("fabrics: {}")
    assert command_line.main(["simulate", *options]) == output.UNUSABLE
    assert "railwright policy validate" in capsys.readouterr().err


def test_pictures_are_drawn_as_png_and_svg(tmp_path):
    pytest.importorskip("matplotlib")
    assert command_line.main([*QUICK, "--policies", "none,railwright", "--plot", str(tmp_path / "new")]) == output.OK
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == [f"superpod-2-{name}.{kind}" for name in ("busbw-cdf", "busbw") for kind in ("png", "svg")]
    assert (tmp_path / "new" / "superpod-2-busbw.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_what_to_install_before_it_simulates(tmp_path):
    (tmp_path / "matplotlib.py").write_text('raise ModuleNotFoundError("as if it were not there", name="matplotlib")')
    completed = subprocess.run(
        [sys.executable, "-m", "railwright.cli", *QUICK, "--plot", str(tmp_path / "new")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == output.UNUSABLE
    assert "pip install 'railwright[plots]'" in completed.stderr
    assert not completed.stdout


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    assert command_line.main([*QUICK, "--plot", str(tmp_path / "file")]) == output.UNUSABLE
    assert str(tmp_path / "file") in capsys.readouterr().err


NAMES = ("no extender", "binpack", "greedy near peers", "railwright", "exact optimum")
HEADS = (
    "policy", "modelled busbw of optimum", "per gang", "worst", "leaves x fewest", "avoidable crossings",
    "by rank order", "avoidable NUMA splits", "mean wait", "utilization",
)  # fmt: skip


@pytest.mark.parametrize("columns", [60, 140])
def test_names_are_not_truncated_and_lines_not_wrapped_at_any_width(columns):
    code, shown = terminals.run(["simulate", "--shape", "superpod-2", "--jobs", "20"], columns, NO_COLOR="1")
    assert code == output.OK, shown
    assert "…" not in shown
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in shown.splitlines()]
    head = next(line for line in lines if line.lstrip().startswith("policy "))
    assert len(head) <= columns
    assert {title for title in HEADS if title in head} == set(re.split(r"\s{2,}", head.strip()))
    for name in NAMES:
        assert [line for line in lines if line.startswith(f"{name}  ")], name


def test_output_to_a_file_has_every_column_and_no_trailing_blanks(capsys):
    assert command_line.main(["simulate", "--shape", "superpod-2", "--jobs", "20"]) == output.OK
    stdout = capsys.readouterr().out
    assert all(head in stdout for head in HEADS)
    assert all(line == line.rstrip() for line in stdout.splitlines())


def test_by_default_the_links_of_a_published_cluster_are_oversubscribed_and_policies_differ(capsys):
    quick = ["simulate", "--shape", "lingjun", "--jobs", "60", "--policies", "none,railwright", "-o", "json"]
    assert command_line.main(quick) == output.OK
    document = json.loads(capsys.readouterr().out)
    assert document["site"]["oversubscription"][0] > 1
    worth = {name: policy["modelled_busbw_of_optimum"] for name, policy in document["policies"].items()}
    assert worth["none"] < worth["railwright"]


def test_parameters_and_shapes_have_whole_names_on_a_terminal():
    for option, names in (
        ("--shapes", cluster_specs.CATALOGUE),
        ("--parameters", [row["name"] for row in simulation.list_parameters()]),
    ):
        _, output = terminals.run(["simulate", option], 60, NO_COLOR="1")
        assert all(name in output for name in names)
