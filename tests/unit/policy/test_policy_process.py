"""Reading a policy in another process gives the same document or errors."""

import asyncio
import pathlib
import signal
import subprocess
import sys

import pytest

from railwright.cluster import policies, policy_process

ROOT = pathlib.Path(__file__).resolve().parents[3]
SECONDS = 240.0  # on a busy machine a process of lower priority waits for most of its time


def test_a_valid_policy_is_returned_unchanged():
    text = (ROOT / "manifests" / "examples" / "360-roce" / "policy.yaml").read_text()
    assert asyncio.run(policy_process.read(text, SECONDS)) == policies.read(text)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f: {transport: rocee}\ncolour: red\n",
        "colour: \ud800",
    ],
)
def test_an_invalid_policy_is_returned_with_all_its_errors(text):
    result = asyncio.run(policy_process.read(text, SECONDS))
    assert isinstance(result, policies.Rejected)
    assert [error.line for error in result.errors] == [error.line for error in policies.read(text).errors]
    assert result.errors[0].message


def test_a_policy_that_takes_too_much_memory_is_refused_with_that_reason():
    limited = [
        "sh",
        "-c",
        'ulimit -v 100000; exec "$@"',
        "-",
        sys.executable,
        "-P",
        "-m",
        "railwright.cluster.policy_process",
    ]
    ran = subprocess.run(limited, input=b"a: 1\n" * 100_000, capture_output=True, check=True)
    assert b"needs more than 97 MiB of memory to parse" in ran.stdout


def test_a_process_that_takes_too_long_is_killed(monkeypatch):
    started, start = [], subprocess.Popen

    def note(*arguments, **options):
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    with pytest.raises(policy_process.ReaderError, match=r"not read within 0\.2 s"):
        asyncio.run(policy_process.read("a: 1\n" * 200_000, 0.2))
    assert [process.returncode for process in started] == [-signal.SIGKILL]
