"""TAB completion: the candidates, and the shipped script in a real bash."""

import re
import shutil
import subprocess
import sys

import pytest
from admitting import ROOT

from railwright.cli import __main__ as command_line
from railwright.cli import completion, dispatch, programs

PARSER = dispatch.build_parser()


def list_candidates(*words: str) -> list[str]:
    return [value for value, _ in completion.find(PARSER, words).candidates]


def test_completion_of_the_first_word_lists_commands():
    assert set(list_candidates("")) == set(dispatch.COMMANDS)
    assert list_candidates("ga") == ["gangs"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gangs", "--wai"), ["--waiting"]),
        (("gangs", "-o", ""), ["text", "wide", "name", "json", "yaml"]),
        (("gangs", "-n", "prod", "--output=js"), ["json"]),
        (("gangs", "--output", "=", "y"), ["yaml"]),
        (("gangs", "--output", "="), ["text", "wide", "name", "json", "yaml"]),
        (("verify", ""), ["manifest", "log", "job", "gang", "pod"]),
        (("verify", "manifest", "--kind", "p"), ["pytorchjob"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("gangs", "-n", ""), []),
        (("gangs", "--waiting", "--fa"), ["--fabric"]),
        (("nonsense", "--x"), []),
    ],
)
def test_completion_of_later_words_lists_options_and_values(words, expected):
    assert list_candidates(*words) == expected


def test_files_are_completed_only_where_a_file_is_expected():
    assert completion.find(PARSER, ("lint", "")).files
    assert completion.find(PARSER, ("gangs", "--policy", "x")).files
    assert not completion.find(PARSER, ("gangs", "-n", "")).files
    assert not completion.find(PARSER, ("",)).files


@pytest.mark.parametrize(
    ("words", "value", "has_help", "directive"),
    [(("gangs", "-o", "js"), "json", False, ":4"), (("gangs", "--wai"), "--waiting", True, ":4")],
)
def test_the_lines_are_those_that_kubectl_expects_of_plugins(words, value, has_help, directive):
    candidate, last = completion.format_lines(completion.find(PARSER, words))
    assert (candidate.split("\t")[0], "\t" in candidate, last) == (value, has_help, directive)


def test_files_are_asked_for_in_the_last_line():
    assert [*completion.format_lines(completion.find(PARSER, ("lint", "")))] == [":0"]


def test_every_command_has_two_examples_that_its_parser_accepts():
    leaves = [leaf for leaf in PARSER.get_leaves() if leaf.command.examples]
    assert {leaf.name.split()[1] for leaf in leaves} == set(dispatch.COMMANDS) - set(programs.PROGRAMS)
    for leaf in leaves:
        assert len(leaf.command.examples) == 2, leaf.name
        for line in leaf.command.examples:
            parts = re.split(r"\||>", line.replace("<(", "| ").rstrip(")"))
            words = next(part.split() for part in parts if part.split()[0] == "railwright")
            assert " ".join(words).startswith(leaf.name)
            assert PARSER.parse(words[1:])[0] is leaf


def test_the_help_contains_the_example(capsys):
    assert command_line.main(["gangs", "--help"]) == 0
    assert "\n  railwright gangs -n prod -o wide\n" in capsys.readouterr().out


@pytest.fixture
def program(tmp_path):
    """`railwright` on a PATH of its own."""
    path = tmp_path / "railwright"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m railwright.cli "$@"\n')
    path.chmod(0o755)
    return path


def test_bash_completes_with_the_script(program, tmp_path):
    (tmp_path / "a.yaml").write_text("")
    script = (
        completion.SCRIPTS["bash"]
        + """
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _railwright; echo "${COMPREPLY[*]}"; }
complete -p railwright
try railwright ga
try railwright gangs -o ''
try railwright verify log -o w
"""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True,
        env={"PATH": f"{program.parent}:/usr/bin:/bin"}, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "complete -F _railwright railwright",
        "gangs",
        "text wide name json yaml",
        "wide",
    ]


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_the_other_shells_accept_their_scripts(shell, check, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    (tmp_path / "script").write_text(completion.SCRIPTS[shell])
    subprocess.run([shell, check, str(tmp_path / "script")], check=True)
