"""The installed wheel: its contents, and commands that need its data files."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
UV = pathlib.Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_contains_only_four_packages_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
        (licence,) = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert {name for name in folders if not name.endswith(".dist-info")} == {
        "railwright",
        "webhook",
        "extender",
        "certs",
    }


def test_commands_of_an_installed_wheel_find_their_data_files(wheel, tmp_path):
    """It is installed into a folder that comes before this repository, beside the dependencies of the tests."""
    installed = tmp_path / "installed"
    install = [UV, "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target", installed, wheel]
    subprocess.run(install, check=True)
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def run(*command: str | pathlib.Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = installed / "bin" / "railwright"
    assert "apiVersion: railwright.io/v1alpha1" in run(command, "policy", "init", "--cloud", "eks-efa")
    demo = installed / "railwright" / "cli" / "demo"
    assert "injected: fabric roce" in run(command, "explain", demo / "job.yaml", "--policy", demo / "policy.yaml")
    assert run(sys.executable, "-c", "import webhook; print(*webhook.__path__)") == f"{installed / 'webhook'}\n"
