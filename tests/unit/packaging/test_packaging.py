"""Packaging: dependencies, one version everywhere, and an image built from locked packages."""

import importlib.metadata
import os
import pathlib
import re
import tomllib

import yaml
from packaging import requirements, utils

from railwright.fabric import version

ROOT = pathlib.Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTAINERFILE = (ROOT / "Containerfile").read_text()


def find_copied() -> list[str]:
    """Return the files and folders of the checkout that the Containerfile copies."""
    lines = re.findall(r"^COPY (?!--from)(.*)", CONTAINERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_build_backend_has_one_version_in_pyproject_and_lock_files():
    (pinned,) = PROJECT["build-system"]["requires"]
    assert re.fullmatch(r"hatchling==[\d.]+", pinned)
    assert pinned in PROJECT["project"]["optional-dependencies"]["dev"]
    for lock in ("build", "dev"):
        lines = (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines()
        assert f"{pinned} \\" in lines, f"requirements/{lock}.txt is older than pyproject.toml: make lock"


# In prose too, where no word is the name of an installed package
IMPORT = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)


def test_every_imported_package_is_a_declared_dependency():
    """The packages of the tests are installed too, so an import can work here and fail in the image."""
    ours = ("railwright", "webhook", "extender", "certs")
    project = PROJECT["project"]
    declared = {utils.canonicalize_name(requirements.Requirement(line).name) for line in project["dependencies"]}
    texts = [path.read_text() for name in ours for path in (ROOT / name).rglob("*.py")]
    providers = importlib.metadata.packages_distributions()
    imported = {name for text in texts for name in IMPORT.findall(text)} & providers.keys() - {*ours}
    undeclared = [name for name in imported if declared.isdisjoint(map(utils.canonicalize_name, providers[name]))]
    assert "msgspec" in imported
    assert not undeclared, "name the package in the dependencies of pyproject.toml, then: make lock"


def test_the_image_installs_only_hashed_packages():
    commands = re.findall(r"pip (?:install|wheel) [^&\n]*", CONTAINERFILE)
    ours = [command for command in commands if command.split()[-1].startswith((".", "/wheels"))]
    others = [command for command in commands if command not in ours]
    assert all("--no-deps" in command for command in ours)
    assert all("--no-build-isolation" in command for command in ours if command.startswith("pip wheel"))
    assert all("--require-hashes" in command for command in others)
    assert any("requirements/build.txt" in command for command in others)


def test_the_build_context_has_only_what_the_containerfile_copies():
    lines = (ROOT / ".containerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(find_copied())
    assert "**/__pycache__" in rules


# --- one version ----------------------------------------------------------------------------------------------


_WITHOUT = {"build", "dist", "data", "__pycache__"}


def files(*endings):
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in _WITHOUT and not name.startswith("."))
        for path in (pathlib.Path(folder, name) for name in sorted(names) if name.endswith(endings)):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_the_installed_package_has_the_version_of_the_code():
    assert importlib.metadata.version("railwright") == version.VERSION, "make setup"
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]


def test_the_chart_has_the_version_of_the_code():
    chart = yaml.safe_load((ROOT / "manifests/chart/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version.VERSION, version.VERSION)


def test_images_on_pages_and_in_overlays_have_the_version_of_the_code():
    tags = re.compile(r"railwright:(\d+\.[\w.-]+)|^\s*-? *(?:\{.*)?(?:newTag|tag): *\"?(\d+\.[\w.-]+)", re.MULTILINE)
    tagged = {(name, "".join(match)) for name, text in files(".md", ".yaml", ".yml") for match in tags.findall(text)}
    assert {name for name, _ in tagged} >= {
        "README.md",
        "docs/operator-guide.md",
        "manifests/chart/values-production.yaml",
    }
    assert {(name, tag) for name, tag in tagged if tag != version.VERSION} == set()
