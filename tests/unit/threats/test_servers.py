"""Attacks on our servers and on our dependencies (threats T9, T10, T15, T16)."""

import json
import pathlib
import re
import tomllib

import extending
import pytest
from placing import LEAF, build_node, build_pod, build_policy, mark_broken

from extender import state
from railwright.serving import application, settings

ROOT = pathlib.Path(__file__).parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
CAP = 10 * 1024 * 1024  # bytes of an answer that Volcano reads (its fix of CVE-2025-32777)
VERBS = {"filter", "prioritize", "predicate", "allocate", "deallocate", "session-close"}


def build_schedulers(known: state.State) -> extending.Extender:
    by = build_policy(domains=[LEAF])
    return extending.Extender(known, lambda: by, clock=lambda: 0.0)


@pytest.fixture
def verbs():
    return build_schedulers(state.State())


def test_t09_only_the_extender_may_serve_plain_http_beyond_loopback_and_needs_two_options():
    with pytest.raises(SystemExit):
        settings.parse("extender", ["--plain-http", "--listen=0.0.0.0:8713"])
    settings.parse("extender", ["--plain-http", "--allow-plain-http", "--listen=0.0.0.0:8713"])
    with pytest.raises(SystemExit):
        settings.parse("webhook", ["--plain-http", "--allow-plain-http", "--listen=0.0.0.0:9443"])


def test_t10_the_extender_serves_no_path_that_binds_or_preempts(verbs):
    routes = verbs.build_application().router.routes()
    assert {
        route.resource.canonical.rpartition("/")[2] for route in routes if route.method == "POST" and route.resource
    } == VERBS


def test_t09_only_explain_is_served_without_a_client_certificate(verbs):
    assert verbs.build_application()[application.RULES].public == {"/explain/{namespace}/{pod}"}


def test_t15_an_answer_with_5000_refused_nodes_is_below_volcanos_limit():
    known, by = state.State(), build_policy()
    known.apply_policy(by)
    names = [f"{'n' * 50}-{number:04}.{'d' * 100}.example.com" for number in range(5000)]
    for name in names:
        known.cluster.upsert_node(mark_broken(build_node(name, "leaf"), "rail0"))
    asking = build_pod("p", annotations={"secret": "s3cr3t" * 1000})
    answer = extending.Extender(known, lambda: by, clock=lambda: 0.0).kube.filter(extending.build_body(asking, names))
    assert len(json.loads(answer)["FailedAndUnresolvableNodes"]) == len(names)
    assert len(answer) < CAP / 4
    assert b"s3cr3t" not in answer, "nothing of the request comes back"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_t16_packages_are_pinned_by_hash(lock):
    text = lock.read_text()
    pinned = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert all("==" in requirement.split("\n")[0] and "--hash=sha256:" in requirement for requirement in pinned)
    assert "://" not in text
    assert "--index-url" not in text


def test_t16_the_image_installs_dependencies_from_the_lock_file():
    locked = (ROOT / "requirements" / "run.txt").read_text()
    version = re.search(r"^aiohttp==(\d+)\.(\d+)\.(\d+)", locked, re.MULTILINE)
    assert tuple(map(int, version.groups())) >= (3, 14, 1), "the trailer and chunk limits of 2026"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for dependency in project["dependencies"]:
        name = re.match(r"[A-Za-z0-9-]+", dependency).group().lower()
        assert re.search(rf"^{name}==", locked, re.MULTILINE), f"{name} is not in requirements/run.txt: make lock"
    assert "requirements/run.txt" in (ROOT / "Containerfile").read_text()
