"""Undocumented parts of libraries are limited to the releases in which somebody has read them.

A test that fails here names the code to read beside the new release. Then raise the ceiling in pyproject.toml and the
number in this file together.
"""

import ast
import importlib.metadata
import importlib.util
import pathlib
import sys
import tomllib
from typing import NamedTuple

import pytest
import yaml.constructor
import yaml.resolver
from packaging import requirements, version

ROOT = pathlib.Path(__file__).parents[3]


class Internals(NamedTuple):
    """A library, the release whose internals were read, the first one that is not, and the code that uses them."""

    library: str
    read: str
    ceiling: str
    used: str


TABLE = (
    Internals(
        "PyYAML",
        "6.0",
        "6.1",
        "railwright/cluster/documents.py: SafeConstructor.construct_yaml_<tag>, Resolver().resolve",
    ),
)
PACKAGES = ("railwright", "webhook", "extender", "certs")
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.library)
def test_the_installed_release_is_the_one_whose_internals_were_read(row):
    installed = importlib.metadata.version(row.library)
    parts = row.read.count(".") + 1
    known = ".".join(installed.split(".")[:parts]) == row.read
    assert known, f"{row.library} {installed} is installed; read what we use of {row.read} beside it: {row.used}"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.library)
def test_only_releases_that_were_reviewed_can_be_installed(row):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirement = {declared.name: declared for declared in map(requirements.Requirement, project["dependencies"])}[
        row.library
    ]
    assert importlib.metadata.version(row.library) in requirement.specifier
    assert version.Version(row.ceiling) not in requirement.specifier, f"{row.library} needs <{row.ceiling}: {row.used}"


def list_private_uses(tree: ast.Module, library: str) -> list[str]:
    """Return what a module uses of a library's private state, or could use by deriving from one of its classes."""
    names, uses = set(), []
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == library:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            if module.split(".")[0] == library:
                names.add(module.split(".")[-1])
                uses += [module for part in module.split(".") if part.startswith("_")]
    if not names:
        return uses
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}):
                uses.append(ast.unparse(node))
        elif isinstance(node, ast.ClassDef):
            uses += [ast.unparse(base) for base in node.bases if ast.unparse(base).split(".")[0] in names]
    return uses


def test_nothing_private_of_aiohttp_is_used():
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    trees = {path: ast.parse(text) for path, text in texts.items() if "aiohttp" in text}
    assert "railwright/cluster/client.py" in trees
    assert {path: uses for path, tree in trees.items() if (uses := list_private_uses(tree, "aiohttp"))} == {}


def test_uses_of_private_names_are_detected():
    for text in (
        "from aiohttp import web\nclass A(web.RequestHandler): pass",
        "from aiohttp import web\nweb.Server(print)._connections",
        "from aiohttp import web\ndef close(handler): handler._close = True",
        "import aiohttp._http_parser",
    ):
        assert list_private_uses(ast.parse(text), "aiohttp"), text


def test_the_internals_of_pyyaml_exist():
    for tag in ("bool", "float", "int", "null", "str", "timestamp", "binary"):
        assert callable(getattr(yaml.constructor.SafeConstructor, f"construct_yaml_{tag}"))
    assert yaml.resolver.Resolver().resolve(yaml.ScalarNode, "1", (True, False)) == "tag:yaml.org,2002:int"


def test_the_mmap_of_this_python_was_reviewed():
    """requires-python has no ceiling: what a new Python breaks is seen here, and the image has its own."""
    assert sys.version_info[:2] in PYTHONS, "read railwright/serving/messages.py"
