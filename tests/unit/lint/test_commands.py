"""NCCL's variables in the command lines and shell scripts of containers, as lint reads them."""

import time

import pytest

from railwright.fabric.lint import commands


def list_exported(*words):
    return [(s.name, s.value) for s in commands.read_settings(words).exported]


def test_mpirun_passes_the_variables_of_its_option_x_to_ranks():
    result = commands.read_settings(
        ["/opt/ompi/bin/mpirun", "-np", "4", "-x", "NCCL_DEBUG=INFO", "-x", "NCCL_IB_HCA", "-x", "PATH", "train.py"]
    )
    assert result.launches
    assert [(s.name, s.value, s.where) for s in result.passed] == [
        ("NCCL_DEBUG", "INFO", "command: -x"),
        ("NCCL_IB_HCA", None, "command: -x"),
    ]


def test_a_script_after_bash_c_is_read_command_by_command():
    script = """
    set -euo pipefail   # -x NCCL_NOT_HERE=1
    export NCCL_IB_TIMEOUT=22 NCCL_DEBUG="INFO"
    NCCL_IB_HCA='mlx5_0, mlx5_1' python train.py
    cd /work && mpirun -x NCCL_IB_RETRY_CNT=15 \\
        -x NCCL_ALGO=Ring,Tree \\
        python train.py NCCL_NOT_A_SETTING=1
    """
    result = commands.read_settings(["/bin/bash", "-ec", script])
    assert [(s.name, s.value) for s in result.exported] == [
        ("NCCL_IB_TIMEOUT", "22"), ("NCCL_DEBUG", "INFO"), ("NCCL_IB_HCA", "mlx5_0, mlx5_1"),
    ]  # fmt: skip
    assert [(s.name, s.value) for s in result.passed] == [("NCCL_IB_RETRY_CNT", "15"), ("NCCL_ALGO", "Ring,Tree")]
    assert {s.where for s in result.exported} == {"command: export", "command"}


@pytest.mark.parametrize("shell", ["sh", "/bin/sh", "bash", "/usr/bin/zsh"])
@pytest.mark.parametrize("flag", ["-c", "-lc", "-xec"])
def test_a_script_is_read_after_any_shell_whose_flags_include_c(shell, flag):
    assert list_exported(shell, flag, "export NCCL_DEBUG=WARN") == [("NCCL_DEBUG", "WARN")]
    assert list_exported(shell, "-e", flag, "export NCCL_DEBUG=WARN") == [("NCCL_DEBUG", "WARN")]


@pytest.mark.parametrize("value", ["$(hostname)", "${X}", "$X", "`id`", '"$X"'])
def test_lint_treats_a_value_that_a_shell_would_compute_as_unknown(value):
    assert list_exported("bash", "-c", f"export NCCL_HOSTID={value}")[0] == ("NCCL_HOSTID", None)
    (passed,) = commands.read_settings(("mpirun", "-x", f"NCCL_HOSTID={value}")).passed
    assert (passed.name, passed.value) == ("NCCL_HOSTID", None)


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "NCCL_DEBUG=INFO"],
        ["curl", "-x", "NCCL_DEBUG=INFO"],
        ["bash", "run.sh", "-c", "export NCCL_DEBUG=INFO"],
        ["bash", "-c", "# export NCCL_DEBUG=INFO"],
        ["bash", "-c", "echo NCCL_DEBUG=INFO"],
        ["bash", "-c"],
        ["mpirun", "-x"],
        ["mpirun", "-mca", "btl"],
        [],
    ],
)
def test_an_argument_that_sets_no_variable_is_ignored(words):
    result = commands.read_settings(words)
    assert (result.exported, result.passed) == ((), ())


def test_a_script_longer_than_the_limit_is_not_read():
    words = ["bash", "-c", "export NCCL_DEBUG=INFO\n" * 100]
    assert len(commands.read_settings(words).exported) == 100
    assert commands.read_settings(words, 2000) == commands.CommandSettings()


@pytest.mark.parametrize("piece", ["a", "'", '"', "\\", "$", "${NCCL_", ";", " ", "=", "-x NCCL_A", "bash -c ", "all_"])
def test_the_time_to_read_a_command_line_grows_linearly_with_its_length(piece):
    begin = time.process_time()
    words = ["bash", "-c", "export NCCL_DEBUG=" + piece * (900_000 // len(piece))]
    commands.read_settings(words)
    commands.list_read_variables(words)
    assert time.process_time() - begin < 3, "shlex alone takes ten seconds for such a word"


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("echo $NCCL_MINE", {"NCCL_MINE"}),
        ("echo ${NCCL_MINE:-5}", {"NCCL_MINE"}),
        ("python -c 'import os; os.environ[\"NCCL_MINE\"]'", {"NCCL_MINE"}),
        ("export NCCL_TYPO=$NCCL_TYPO", set()),  # only passes it on, so NCCL is meant to read it
        ('mpirun -x NCCL_TYPO="${NCCL_TYPO}" train', set()),
        ("export NCCL_IB_TIMEOUT=$NCCL_MINE", {"NCCL_MINE"}),
        ("NCCL_TYPO=1 train", set()),
    ],
)
def test_variables_that_a_script_reads_are_listed_except_those_it_only_passes_on(script, names):
    assert commands.list_read_variables(["bash", "-c", script]) == names
