"""The CPU time of commands, with a cluster and without.

Other programs increase it, because they use the processor's caches too. So the fastest of several runs counts, and the
limit is relative to the CPU time of a fixed Python program, measured beside each run.
"""

import asyncio
import os
import resource

import installations
import processes
import pytest
import served_installations

LIMIT, LIMIT_ALONE = 0.8, 0.3  # seconds of CPU, user and system, where REFERENCE takes REFERENCE_SECONDS or less;
# alone: without a cluster
RUNS = 12  # at most; one below the limit is enough
# starts Python with modules of its standard library, as a command does with its libraries
REFERENCE = (
    "import argparse, asyncio, ast, concurrent.futures, decimal, difflib, email.message, http.client, "
    "importlib.metadata, ipaddress, json, logging.config, multiprocessing.pool, pydoc, sqlite3, ssl, tarfile, "
    "unittest.mock, urllib.request, xml.dom.minidom, zipfile"
)
REFERENCE_SECONDS = 0.14
DEMO = installations.ROOT / "railwright" / "cli" / "demo"


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory):
    """Return a folder for compiled modules, as in installed packages, so that runs do not compile them."""
    return tmp_path_factory.mktemp("bytecode")


def measure_children():
    """Return the seconds of CPU time of ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def measure_run(arguments, bytecode):
    """Return the exit code, the CPU time and the output of Python with these arguments."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    began = measure_children()
    process = await processes.start_python(*arguments, env=environment, stderr=asyncio.subprocess.STDOUT)
    out, _ = await process.communicate()
    return process.returncode, measure_children() - began, out.decode()


async def expect_less(seconds, command, code, bytecode):
    """Run a command once to compile its modules, then until a run takes less than `seconds`."""
    exit_code, _, out = await measure_run(command, bytecode)
    assert exit_code == code, out
    await measure_run(("-c", REFERENCE), bytecode)
    reference, measured, limit = [], [], 0.0
    while len(measured) < RUNS and not (measured and min(measured) < limit):
        reference.append((await measure_run(("-c", REFERENCE), bytecode))[1])
        measured.append((await measure_run(command, bytecode))[1])
        limit = seconds * max(1.0, min(reference) / REFERENCE_SECONDS)
    assert min(measured) < limit, (measured, reference)
    print(*command, measured, reference)


JOB = str(DEMO / "job.yaml")
COMMANDS = {  # exit code
    ("check",): 0,
    ("gangs",): 0,
    ("fabric",): 0,
    ("explain", JOB): 0,
    ("lint", JOB): 1,  # of the policy in the cluster, which the demo's job does not suit
}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
async def test_a_command_against_a_cluster_stays_within_its_cpu_limit(words, bytecode, tmp_path):
    async with served_installations.serve(tmp_path) as installation:
        command = ("-m", "railwright.cli", *words, "--kubeconfig", installation.kubeconfig)
        await expect_less(LIMIT, command, COMMANDS[words], bytecode)


async def test_help_and_lint_stay_within_their_cpu_limit(bytecode):
    await expect_less(LIMIT_ALONE, ("-m", "railwright.cli", "--help"), 0, bytecode)
    await expect_less(LIMIT_ALONE, ("-m", "railwright.cli", "lint", "--local", JOB), 1, bytecode)
