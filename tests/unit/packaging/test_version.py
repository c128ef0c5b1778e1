"""One version, written in railwright/fabric/version.py.

And the Python that the image has is the one that is tested first.
"""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import tomllib

import pytest
import yaml

from railwright.fabric import version

ROOT = pathlib.Path(__file__).parents[3]
_WITHOUT = {"build", "dist", "data", "__pycache__"}


def files(*endings):
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in _WITHOUT and not name.startswith("."))
        for path in (pathlib.Path(folder, name) for name in sorted(names) if name.endswith(endings)):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_the_package_has_the_version():
    assert importlib.metadata.version("railwright") == version.VERSION, "make setup"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert "version" not in project["project"]


def test_no_other_code_contains_the_version():
    pattern = re.compile(rf"(?<![\d.]){re.escape(version.VERSION)}(?![\d.])")
    assert [name for name, text in files(".py", ".toml") if pattern.search(text)] == ["railwright/fabric/version.py"]


def test_the_chart_has_the_version():
    chart = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version.VERSION, version.VERSION)


def test_images_of_pages_and_overlays_are_tagged_with_the_version():
    tags = re.compile(r"railwright:(\d+\.[\w.-]+)|^\s*-? *(?:\{.*)?(?:newTag|tag): *\"?(\d+\.[\w.-]+)", re.MULTILINE)
    tagged = {(name, "".join(match)) for name, text in files(".md", ".yaml", ".yml") for match in tags.findall(text)}
    assert {name for name, _ in tagged} >= {"README.md", "docs/installing.md", "manifests/chart/values-production.yaml"}
    assert {(name, tag) for name, tag in tagged if tag != version.VERSION} == set()


def test_the_changelog_begins_with_the_version():
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version.VERSION


def read_shipped_python():
    """Return the Python of the image."""
    stages = re.findall(r"^FROM \S*/python:(\d+\.\d+)-slim", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert len(stages) == 2
    assert len(set(stages)) == 1
    return stages[0]


def test_the_python_of_the_image_is_checked_and_preferred():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tools["mypy"]["python_version"] == read_shipped_python()
    listed = subprocess.run(
        ["sh", "tests/support/interpreters.sh"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    versions = [line.split()[0] for line in listed.stdout.splitlines()]
    assert versions
    assert versions == sorted(
        versions, key=lambda minor: (minor != read_shipped_python(), -int(minor.partition(".")[2]))
    )


def make_interpreter(folder, name, prints):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{prints}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("argument", ["shipped", "3.13", ""])
def test_only_an_interpreter_that_runs_counts(tmp_path, argument):
    """A shim of pyenv is there and refuses; the version beside it runs."""
    make_interpreter(tmp_path, "bin/python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    make_interpreter(tmp_path, "pyenv/versions/3.13.0/bin/python", 'test "$3" = 3.13 && echo /where/it/is')
    environment = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "PYENV_ROOT": str(tmp_path / "pyenv"),
        "HOME": "/nowhere",
    }
    command = ["sh", "tests/support/interpreters.sh", *([argument] if argument else [])]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    expected = {"shipped": "3.13", "3.13": "/where/it/is", "": "3.13 /where/it/is"}[argument]
    assert done.stdout.splitlines()[0] == expected
