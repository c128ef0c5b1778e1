"""What we use of libraries beyond their documentation: held to the releases in which somebody has read it.

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
from aiohttp import http, web
from packaging import requirements, version

ROOT = pathlib.Path(__file__).parents[2]


class Internals(NamedTuple):
    """A library, the release whose internals were read, the first one that is not, and the code that uses them."""

    library: str
    read: str
    ceiling: str
    used: str


TABLE = (
    Internals(
        "aiohttp",
        "3.14",
        "3.15",
        "railwright/serving/connections.py: subclass of web.RequestHandler that answers before its loop is "
        "woken (the names are "
        "HANDLER below; compare data_received, start, keep-alive, _waiter and _messages); "
        "railwright/serving/answers.py: "
        "RawRequestMessage and message_consumed; railwright/serving/limits.py: request.writer.output_size "
        "after 100-continue",
    ),
    Internals(
        "kubernetes-asyncio",
        "36",
        "37",
        "railwright/cluster/kubernetes_library.py: which names config imports from client; "
        "railwright/cluster/credentials.py: "
        "Configuration.auth_settings is a coroutine and gives in, key and value; tls_server_name, proxy, verify_ssl",
    ),
    Internals(
        "PyYAML",
        "6.0",
        "6.1",
        "railwright/cluster/documents.py: SafeConstructor.construct_yaml_<tag>; railwright/cluster/nodes.py: "
        "Resolver().resolve",
    ),
)
# The names of aiohttp's web.RequestHandler that railwright/serving/connections.py reads or writes.
HANDLER = {
    *("_close", "_force_close", "_keepalive", "_keepalive_handle", "_keepalive_timeout", "_loop"),
    *("_max_msg_queue_size", "_messages", "_next_keepalive_close_time", "_parser", "_paused", "_process_keepalive"),
    *("_read_bufsize", "_reading_paused", "_request_count", "_waiter"),
}
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.library)
def test_the_installed_release_is_the_one_whose_internals_were_read(row):
    installed = importlib.metadata.version(row.library)
    parts = row.read.count(".") + 1
    known = ".".join(installed.split(".")[:parts]) == row.read
    assert known, f"{row.library} {installed} is installed; read what we use of {row.read} beside it: {row.used}"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.library)
def test_no_release_that_nobody_has_read_can_be_installed(row):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {each.name: each for each in map(requirements.Requirement, project["dependencies"])}[row.library]
    assert importlib.metadata.version(row.library) in wanted.specifier
    assert version.Version(row.ceiling) not in wanted.specifier, f"{row.library} needs <{row.ceiling}: {row.used}"


def test_the_internals_of_aiohttps_connections_are_listed_and_there():
    tree = ast.parse((ROOT / "railwright" / "serving" / "connections.py").read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")}
    slots = {name for each in web.RequestHandler.__mro__ for name in getattr(each, "__slots__", ())}
    theirs = {name for name in {*slots, *dir(web.RequestHandler)} if not name.startswith("__")}
    assert names & theirs == HANDLER, "HANDLER lists what railwright/serving/connections.py uses of web.RequestHandler"
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert methods & theirs >= {"connection_lost", "connection_made", "data_received", "finish_response", "shutdown"}
    assert callable(http.HttpRequestParser.message_consumed)


def test_the_other_internals_are_there():
    for tag in ("bool", "float", "int", "null", "str", "timestamp", "binary"):
        assert callable(getattr(yaml.constructor.SafeConstructor, f"construct_yaml_{tag}"))
    assert yaml.resolver.Resolver().resolve(yaml.ScalarNode, "1", (True, False)) == "tag:yaml.org,2002:int"


def test_this_python_is_one_whose_mmap_was_read():
    """requires-python has no ceiling: what a new Python breaks is seen here, and the image has its own."""
    assert sys.version_info[:2] in PYTHONS, "read railwright/serving/bodies.py"
