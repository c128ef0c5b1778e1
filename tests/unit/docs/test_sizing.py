"""Compares the requests and limits on the sizing page with those of the manifests."""

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
_ROW = re.compile(
    r"^\| (?P<server>webhook|extender) \| (?P<where>[^|]+) \| (?P<request>\d+[MG]i) \| (?P<limit>\d+[MG]i) \|",
    re.MULTILINE,
)


def rows() -> list[re.Match[str]]:
    return list(_ROW.finditer((ROOT / "docs" / "evidence" / "performance.md").read_text()))


def test_the_page_recommends_memory_for_both_servers_and_each_size():
    said = {(row["server"], row["where"].strip("* ")) for row in rows()}
    sizes = {where for _, where in said}
    assert len(sizes) == 3
    assert said == {(server, where) for server in ("webhook", "extender") for where in sizes}


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_manifests_ship_the_request_of_a_small_cluster_and_the_limit_of_the_largest(server):
    documents = yaml.safe_load_all((ROOT / "manifests" / "base" / f"{server}.yaml").read_text())
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    first, *_, last = [row for row in rows() if row["server"] == server]
    shipped = container["resources"]
    assert (shipped["requests"]["memory"], shipped["limits"]["memory"]) == (first["request"], last["limit"])
    assert "cpu" not in shipped["limits"]  # a throttled server is late, and late is what callers time out on
