"""No private state of the HTTP libraries is used, so that their new releases need no review."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[3]


PACKAGES = ("railwright", "webhook", "extender", "certs")


def list_private_uses(tree: ast.Module, library: str) -> list[str]:
    """Return a module's uses of a library's private state, also possible ones through a derived class."""
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


@pytest.mark.parametrize("library", ["aiohttp", "kubernetes_asyncio"])
def test_nothing_private_of_a_library_is_used(library):
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    trees = {path: ast.parse(text) for path, text in texts.items() if library in text}
    assert len(trees) > 1
    assert {path: uses for path, tree in trees.items() if (uses := list_private_uses(tree, library))} == {}


def test_uses_of_private_names_are_detected():
    for text in (
        "from aiohttp import web\nclass A(web.RequestHandler): pass",
        "from aiohttp import web\nweb.Server(print)._connections",
        "from aiohttp import web\ndef close(handler): handler._close = True",
        "import aiohttp._http_parser",
    ):
        assert list_private_uses(ast.parse(text), "aiohttp"), text
