"""`make test`: its parts, their summary, and its end by a signal."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from admitting import ROOT

TESTS = ROOT / "tests"
RUN = """
import sys, pathlib
sys.path.insert(0, TESTS)
import run
def pytest(name, **more):
    part = run.Part(name, (), **more)
    options = ("-q", "-c", "/dev/null", f"--junitxml={part.report}")
    part.command = (sys.executable, "-m", "pytest", *options, f"test_{name}.py")
    return part
"""


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start_parts(folder, text):
    return subprocess.Popen(
        [sys.executable, "-c", RUN.replace("TESTS", repr(str(TESTS))) + text],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_summary_has_all_failed_tests(tmp_path):
    (tmp_path / "test_quick.py").write_text("def test_a():\n    pass\ndef test_b():\n    assert 0\n")
    (tmp_path / "test_late.py").write_text(
        "import pytest\n@pytest.fixture\ndef f():\n    yield\n    assert 0\ndef test_c(f):\n    assert 0\n"
        "@pytest.mark.skip\ndef test_d():\n    pass\n"
    )
    text = """
broken = run.Part("build", ("sh", "-c", "echo no compiler; exit 3"), is_background=True)
sys.exit(run.run([broken, pytest("quick"), pytest("late", is_background=True), pytest("never", needs=broken)]))
"""
    with start_parts(tmp_path, text) as process:
        out = process.communicate(timeout=200)[0]
    assert process.returncode == 3, out
    assert "part 2 of 4: quick" in out
    summary = out.rpartition("== summary of ")[2].splitlines()
    rows = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in summary[1:5]}
    assert re.fullmatch(r"FAILED with exit code 3, no report, \d+ s  \(output: build/test/build\.log\)", rows["build"])
    assert rows["quick"].startswith("FAILED with exit code 1, 1 passed, 1 failed, ")
    assert rows["late"].startswith("FAILED with exit code 1, 1 failed, 1 skipped, ")
    assert rows["never"] == "not run: build failed (output: build/test/build.log)"
    assert [line.split() for line in summary[-4:]] == [
        ["quick", "test_quick.py::test_b"],
        ["assert", "0"],
        ["late", "test_late.py::test_c"],
        ["assert", "0"],
    ]
    assert (tmp_path / "build/test/build.log").read_text() == "no compiler\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_parts_before_the_summary(tmp_path, number):
    text = """
sleep = ("sh", "-c", "echo $$ >> pids; exec sleep 600")
sys.exit(run.run([run.Part("beside", sleep, is_background=True), run.Part("now", sleep), run.Part("later", sleep)]))
"""
    with start_parts(tmp_path, text) as process:
        pids, deadline = [], time.monotonic() + 60
        while len(pids) < 2 and time.monotonic() < deadline:
            pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
            time.sleep(0.02)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)  # as a terminal does; as make does
        out = process.communicate(timeout=200)[0]
    assert process.returncode == 130, out
    assert not any(map(is_running, pids))
    assert out.count(f"FAILED with exit code -{int(number)}") == 2
    assert "later   not run" in out


WAITS_FOR_THE_OTHER_RUN = """
import os, pathlib, time
def test_of_{name}():
    pathlib.Path(f"pid-{{os.getpid()}}").touch()
    while len(list(pathlib.Path().glob("pid-*"))) < 2:
        time.sleep(0.01)
    assert {result}
"""


def run_shared(folder, files, *arguments, result=True):
    """Return the names of the tests that two runs of `make check` have run, and their exit codes."""
    for path in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(WAITS_FOR_THE_OTHER_RUN.format(name=path[:1], result=result))
    shared = tempfile.mkdtemp(dir=folder)
    options = ("-vv", "-c", "/dev/null", "--rootdir=.", "--import-mode=importlib", "-p", "shared_run", *arguments)
    command = (sys.executable, "-m", "pytest", *options, f"--shared-run={shared}")
    paths = {**os.environ, "PYTHONPATH": str(TESTS / "support")}
    runs = [subprocess.Popen(command, cwd=folder, env=paths, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    out = "".join(run.communicate(timeout=200)[0] for run in runs)
    return sorted(re.findall(r"::(test_\w+) (?:PASSED|FAILED)", out)), [run.returncode for run in runs]


def test_runs_that_share_their_files_run_each_test_once(tmp_path):
    files = ("a/x-y_test.py", "b-y_test.py", "b/y_test.py", "c_test.py")  # no two are one with "-" for "/"
    assert run_shared(tmp_path, files) == (["test_of_a", "test_of_b", "test_of_b", "test_of_c"], [0, 0])
    assert run_shared(tmp_path, files, "--collect-only") == ([], [0, 0])


def test_failures_of_runs_that_share_their_files_are_known_to_the_next_run(tmp_path):
    files = ("a_test.py", "b_test.py", "c_test.py")
    tests = ["test_of_a", "test_of_b", "test_of_c"]
    assert run_shared(tmp_path, files, result=False) == (tests, [1, 1])
    assert run_shared(tmp_path, ("b_test.py",), "--lf")[0] == tests
    assert run_shared(tmp_path, files, "--lf", "--lfnf=none")[0] == ["test_of_a", "test_of_c"]
    assert run_shared(tmp_path, (), "--lf", "--lfnf=none")[0] == []
