"""Empty input is an error of every command that reads a file, and never a success."""

import io
import itertools
import pathlib
import re

import pytest

from railwright.cli.__main__ import main

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  roce: {transport: roce, rails: [{name: rail0, resource: rdma/r0}]}
"""
EMPTY = {
    "nothing": "",
    "blanks": "\n  \n",
    "a comment": "# later\n",
    "empty documents": "---\n---\n",
    "null": "null\n",
    "an empty mapping": "{}\n",
    "an empty List": "apiVersion: v1\nkind: List\nitems: []\n",
    "an empty List in JSON": '{"apiVersion": "v1", "kind": "NodeList", "items": []}',
}
COMMANDS = (
    ("lint", "FILE"),
    ("lint", "--policy", "POLICY", "FILE"),
    ("lint", "-o", "json", "FILE"),
    ("explain", "FILE", "--policy", "POLICY"),
    ("explain", "POD", "--policy", "POLICY", "--snapshot", "FILE"),
    ("explain", "POD", "--policy", "FILE"),
    ("policy", "validate", "FILE"),
    ("policy", "validate", "-o", "json", "FILE"),
    ("verify", "FILE"),
    ("gangs", "--snapshot", "FILE", "--policy", "POLICY"),
    ("gangs", "--snapshot", "FILE", "--policy", "POLICY", "-o", "json"),
    ("fabric", "--snapshot", "FILE", "--policy", "POLICY"),
    ("dashboard", "--snapshot", "FILE", "--policy", "POLICY"),
)
# Every command meets one form of nothing, and one command of each way to read a file meets all.
READERS = (("lint", "FILE"), ("policy", "validate", "FILE"))
PAIRS = sorted({*((command, "an empty List") for command in COMMANDS), *itertools.product(READERS, EMPTY)})


@pytest.fixture
def files(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n"
    )
    return tmp_path


def substitute_files(command: tuple[str, ...], folder: pathlib.Path, path: str) -> list[str]:
    names = {"FILE": path, "POLICY": str(folder / "policy.yaml"), "POD": str(folder / "pod.yaml")}
    return [names.get(word, word) for word in command]


@pytest.mark.parametrize(("command", "text"), PAIRS)
def test_an_empty_file_is_an_error_that_names_it(files, capsys, command, text):
    path = files / "empty.yaml"
    path.write_text(EMPTY[text])
    code = main(substitute_files(command, files, str(path)))
    captured = capsys.readouterr()
    assert code == (1 if command[:2] == ("policy", "validate") else 2), captured.out + captured.err
    assert str(path) in captured.out + captured.err or command[:1] == ("verify",)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command[0] != "dashboard"], ids=" ".join)
def test_empty_standard_input_is_an_error(files, capsys, monkeypatch, command):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert main(substitute_files(command, files, "-")) != 0, capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_given_as_a_file_is_an_error_that_says_so(files, capsys, command):
    (files / "folder").mkdir()
    assert main(substitute_files(command, files, str(files / "folder"))) == 2
    assert re.search(r"irectory|this folder contains no file named \*\.yaml, \*\.yml", capsys.readouterr().err)


def test_a_manifest_without_pods_is_reported_as_not_checked(tmp_path, capsys):
    path = tmp_path / "service.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    assert main(["lint", str(path)]) == 2
    assert "nothing was checked" in capsys.readouterr().err
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\n"
    )
    assert main(["lint", str(path), str(tmp_path / "pod.yaml")]) == 0, "one with pods beside it is"
