"""TAB completion: the candidates, and the shipped script in a real bash."""

import shutil
import subprocess
import sys

import pytest
from admitting import ROOT

from railwright.cli import __main__ as command_line


def test_the_help_of_a_command_contains_its_examples(capsys):
    assert command_line.main(["gangs", "--help"]) == 0
    assert "\n  railwright gangs -n prod -o wide\n" in capsys.readouterr().out


# --- TAB ------------------------------------------------------------------------------------------------------


def run(command: list[str], folder, **environment: str) -> list[str]:
    """Return the lines that a process prints, with `railwright` first on its PATH, in a folder of its own."""
    program = folder / "bin" / "railwright"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m railwright.cli "$@"\n')
    program.chmod(0o755)
    program.with_name("kubectl-railwright").symlink_to(program)
    path = f"{program.parent}:/usr/bin:/bin"
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": path} | environment, cwd=folder
    )
    return done.stdout.splitlines()


def test_bash_completes_commands_options_values_and_files(tmp_path):
    """Names of files come only where a file is expected."""
    script = """
source <(railwright completion bash)
try() {
    COMPREPLY=(); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
    $(complete -p "$1" | sed 's/.* -F \\([^ ]*\\) .*/\\1/') "$1"
    echo ${COMPREPLY[*]}
}
try railwright ga
try railwright policy ""
try railwright gangs -o ""
try railwright gangs -n prod --output=js
try railwright fabric -o w
try kubectl-railwright gangs --waiting --sn
try railwright lint ""
try railwright gangs --policy b
try railwright gangs -n ""
try railwright nonsense --x
"""
    lines = run(["bash", "--norc", "-c", script], tmp_path)
    assert lines == [
        "gangs", "init validate scheduler-config schema", "text wide json yaml", "json", "wide", "--snapshot", "bin/",
        "bin/", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_zsh_and_fish_accept_the_completion_script(shell, check, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    (tmp_path / "script").write_text("\n".join(run(["railwright", "completion", shell], tmp_path)))
    subprocess.run([shell, check, str(tmp_path / "script")], check=True)
