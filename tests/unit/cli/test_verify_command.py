"""`railwright verify FILE` as a pipeline uses it: one line, an exit code, JSON."""

import io
import json
import pathlib
import sys

import pytest
import yaml
from admitting import ROOT

from railwright.cli import __main__ as command_line

LOGS = yaml.safe_load((ROOT / "tests" / "data" / "nccl-logs.yaml").read_text())


@pytest.fixture
def verify(capsys):
    def verify(*arguments) -> tuple[int, str, str]:
        code = command_line.main(["verify", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return verify


@pytest.fixture
def write_log(tmp_path):
    """`write_log(name)` writes a published log, and returns its path."""

    def write(name: str) -> pathlib.Path:
        path = tmp_path / f"{name}.log"
        path.write_text(LOGS[name]["log"])
        return path

    return write


@pytest.mark.parametrize(
    ("log", "code", "begins"),
    [
        ("erdma-dranet", 2, "cannot tell whether every rail is used: eRDMA, 1 rail, "),  # of how many
        ("mixed-one-pod-tcp", 1, "TCP, not RDMA: train-worker-1 (rank 1): fell back to sockets over eth0"),
        ("rail-missing-on-one-pod", 1, "RDMA, but not on every rail: nccl-tests-worker-1"),
        ("roce-2.19-two-ports", 1, "RDMA was set up and failed"),
        ("quiet", 2, "cannot tell: the logs have no line of NCCL about a network: run with NCCL_DEBUG=INFO"),
    ],
)
def test_verify_prints_one_line_with_the_result_and_has_an_exit_code_for_each_result(
    verify, write_log, log, code, begins
):
    status, out, _ = verify(write_log(log))
    assert status == code
    assert out.count("\n") == 1
    assert out.startswith(begins)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "FILE is missing; give one, or - for standard input"),
        (
            ("mission/llm",),
            "verify mission/llm: mission is no kind of workload that railwright knows, and there is no such file; give",
        ),
        (("./run.log",), "./run.log: No such file or directory"),
        (("run.log", "--counters"), "--counters reads pods of the cluster, not files; give KIND/NAME, as job/NAME"),
    ],
)
def test_an_argument_that_is_neither_a_log_nor_an_object_is_an_error(verify, words, said):
    code, out, err = verify(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"railwright: {said}")


def test_the_option_rails_sets_the_expected_number_of_rails(verify, write_log):
    log = write_log("erdma-dranet")
    assert [verify(log, "--rails", number)[0] for number in (1, 2, 0)] == [0, 1, 2]


def test_verify_reads_pipes_with_undecodable_bytes_and_truncated_lines(verify, monkeypatch, tmp_path):
    whole = LOGS["erdma-dranet"]["log"].encode()
    channel = next(line for line in whole.splitlines(keepends=True) if b"via NET/" in line)
    (tmp_path / "log").write_bytes(whole + b"\xff\xfe\n" + channel.replace(b"/0", b"/7").rstrip())
    with (tmp_path / "log").open() as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        code, out, _ = verify("-", "--rails", 1)
    assert code == 0
    assert out.startswith("RDMA on every rail: eRDMA, 1 of 1 rail,")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert verify("-")[:2] == (2, "cannot tell: the logs are empty: no container has printed anything\n")


def test_verify_reads_several_files_as_the_logs_of_one_job(verify, tmp_path):
    lines = LOGS["erdma-dranet"]["log"].splitlines(keepends=True)
    for at in (0, 1):
        (tmp_path / f"w-{at}.log").write_text("".join(line for line in lines if f"worker-{at}" in line))
    assert "2 pods" in verify(tmp_path / "w-0.log", tmp_path / "w-1.log")[1]


def test_the_json_of_verify_lists_each_pod_with_its_state(verify, write_log):
    code, out, _ = verify(write_log("mixed-one-pod-tcp"), "-o", "json")
    document = json.loads(out)
    assert (code, document["state"]) == (1, "tcp")
    assert [(pod["name"], pod["state"]) for pod in document["pods"]] == [
        ("train-worker-0", "unknown"),
        ("train-worker-1", "tcp"),
    ]
