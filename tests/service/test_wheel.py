"""The wheel beside common packages: no module replaces another."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WELL_KNOWN = ROOT / "tests" / "data" / "wheel" / "well-known.txt"
UV = pathlib.Path(sys.executable).with_name("uv")


def run(*command: str | pathlib.Path, folder: pathlib.Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Return a virtual environment with the well-known packages and, installed after them, railwright."""
    folder = tmp_path_factory.mktemp("environment")
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    for arguments in (("--require-hashes", "-r", WELL_KNOWN), ("--no-deps", wheel)):
        run(UV, "pip", "install", "--quiet", "--python", python, *arguments)
    return folder / "bin"


def test_the_wheel_has_four_packages_and_no_tool_of_the_repository(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {
        "railwright",
        "webhook",
        "extender",
        "certs",
    }


def test_packages_of_the_same_short_names_still_work(environment, tmp_path):
    program = "import cluster, fabric; fabric.Connection; cluster.HierarchicalClustering; print('both work')"
    assert run(environment / "python", "-c", program, folder=tmp_path) == "both work\n"


def test_railwright_works_beside_packages_of_the_same_short_names(environment, tmp_path):
    assert "usage: railwright preflight" in run(environment / "railwright", "preflight", "--help", folder=tmp_path)


def test_no_file_is_owned_by_two_packages(environment, tmp_path):
    program = """
import collections, importlib.metadata
owners = collections.defaultdict(set)
for distribution in importlib.metadata.distributions():
    for path in distribution.files or ():
        owners[str(path)].add(distribution.name)
print(sorted(path for path, names in owners.items() if len(names) > 1))
"""
    assert run(environment / "python", "-c", program, folder=tmp_path) == "[]\n"
