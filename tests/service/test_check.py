"""`railwright check` against an API server: refusals, invalid answers, and output in pipes and terminals."""

import asyncio
import io
import os
import pty
import re
import time
import xml.etree.ElementTree as ET

import api_stub
import broken_installations
import installations
import objects_stub
import processes
import pytest
import reserved_ports
import served_installations
import shell
from rich import console
from rich import text as rich_text

from railwright.cli import output
from railwright.cli.__main__ import main
from railwright.cli.checking import command, rows, snapshots
from railwright.cluster import client as clients
from railwright.serving import metrics

FIRST = b"\xe2\x88\x9a API server answers: http://127.0.0.1:"  # √

ROWS = len(command.ROWS)


@pytest.fixture
async def installation(tmp_path):
    async with served_installations.serve(tmp_path) as served:
        yield served


async def start(installation, *options, **streams):
    words = ("check", "--kubeconfig", installation.kubeconfig, "--request-timeout", "0", *options)
    return await processes.start_command(*words, env={**os.environ, "TERM": "xterm-256color"}, **streams)


@pytest.fixture
def check(installation, capsys):
    """Return `await check("-v")`: run the command on the installation; return exit code, stdout and stderr."""

    async def call(*options: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["check", "--kubeconfig", installation.kubeconfig, *options])
        return code, *capsys.readouterr()

    return call


async def test_check_prints_one_line_for_a_healthy_installation(check):
    code, out, _ = await check()
    assert code == 0
    assert re.fullmatch(r"\d+ checks: \d+ passed, \d+ skipped \(-v lists all\)\n", out)


async def test_check_shows_its_progress_on_a_terminal_before_the_results(installation):
    installation.held["version"] = asyncio.Event()
    ours, theirs = pty.openpty()
    process = await start(installation, "-v", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    async with asyncio.timeout(shell.PATIENCE):
        while b"reading http://127.0.0.1" not in shown:
            shown += await asyncio.to_thread(os.read, ours, 65536)
    assert FIRST not in shown, "the API server has not answered yet"
    installation.held["version"].set()
    while True:
        try:
            part = await asyncio.to_thread(os.read, ours, 65536)
        except OSError:  # the other side is closed
            break
        shown += part
    os.close(ours)
    assert await process.wait() == 0
    lines = shown.decode().split("\r\n")
    visible = [line.rpartition("\r\x1b[K")[2] for line in lines]
    assert any("API server answers" in line for line in visible)
    assert not any("reading" in line for line in visible)


async def test_check_prints_the_install_command_if_the_namespace_has_no_installation(installation):
    code, out, err = await processes.finish(await start(installation, "-n", "elsewhere"))
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[:2] == ["× The webhook is installed", "    namespace elsewhere does not exist"]  # noqa: RUF001
    assert lines[2].startswith(
        "    fix: helm install railwright CHART -n elsewhere --create-namespace, or kubectl apply"
    )
    assert lines[3:] == [
        "    see: railwright check --explain installed",
        f"- {ROWS - 2} checks skipped until this is fixed: The webhook is installed",
        f"{ROWS} checks: 1 failed, 1 passed, {ROWS - 2} skipped (-v lists all)",
    ]


async def test_check_with_wait_prints_failures_on_stderr_and_only_the_last_result(installation):
    policy = installation.trees["policy"][0]["data"]
    valid = policy["policy.yaml"]
    policy["policy.yaml"] = valid.replace("transport: roce", "transport: rocev2").replace("infiniband", "ib2")
    process = await start(installation, "--wait", "60", "-v")
    async with asyncio.timeout(shell.PATIENCE):
        reason = await process.stderr.readline()
    assert reason.startswith(b"railwright: waiting for policy: line 6: fabrics.roce.transport: ")
    assert b"; line 12: fabrics.ib.transport: " in reason
    policy["policy.yaml"] = valid
    code, out, err = await processes.finish(process)
    assert (code, err) == (0, "")
    assert out.count("√ API server answers") == 1
    assert "failed" not in out


@pytest.mark.parametrize(
    ("defects", "waits"),
    [
        ([broken_installations.edit_policy("roce", "rocev2")], False),
        (
            [
                broken_installations.edit_policy("roce", "rocev2"),
                broken_installations.put("deployments", "railwright-webhook", 0, "status", "readyReplicas"),
            ],
            False,
        ),
        ([lambda trees: trees["networks"].clear()], True),
    ],
    ids=["invalid policy", "servers without a valid policy", "network that an operator may create"],
)
async def test_check_with_wait_stops_early_only_if_waiting_ends_none_of_the_failures(
    installation, check, monkeypatch, defects, waits
):
    monkeypatch.setattr(command, "_INTERVAL", 0.02)
    monkeypatch.setattr(command, "_LASTING_RUNS", 2)
    for defect in defects:
        defect(installation.trees)
    begin = time.monotonic()
    code, _, err = await check("--wait", "2" if waits else "60")
    assert code == 1
    assert ("stopped waiting" not in err) == waits
    assert (time.monotonic() - begin > 2) == waits


async def test_the_picture_of_check_shows_a_failed_row_and_loads_no_web_resources(installation, tmp_path):
    """Draw docs/check.svg with RAILWRIGHT_PICTURES=1."""
    pictures = os.environ.get("RAILWRIGHT_PICTURES")
    picture = installations.ROOT / "docs" / "check.svg" if pictures else tmp_path / "check.svg"
    installation.trees["networks"].pop()
    client = await clients.connect(installation.kubeconfig)
    snapshot = await snapshots.read_cluster(client)
    await client.close()
    lines = command.format_report([*rows.run_checks(command.GROUPS, snapshot)])
    screen = console.Console(record=True, highlight=False, width=140, file=io.StringIO())
    for line in lines:
        screen.print(rich_text.Text.assemble(*((output.escape_controls(part), style) for part, style in line)))
    svg = screen.export_svg(title="railwright check")
    picture.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # without rich's web fonts
    text = "".join(ET.fromstring(picture.read_text()).itertext())  # noqa: S314 - our own picture
    assert "prod/rail1" in text
    assert "railwright.io/docs" not in text
    assert "url(" not in picture.read_text().replace("url(#", "")


async def test_check_names_missing_permissions_and_exits_with_2(installation, check):
    installation.forbidden = {"nodes", "railwright-webhook-secret"}
    code, out, err = await check()
    rights = ["list nodes -A", "get secrets/railwright-webhook-tls -n railwright-system"]
    assert code == 2
    assert err.startswith("railwright: ")
    assert len(err.splitlines()) == 1
    assert err.rstrip().endswith("ask for these permissions, or accept the incomplete result: --allow-unread")
    for right in rights:
        assert f"you may not {right} (403 Forbidden)" in err
        assert f"skipped because you may not {right} (403 Forbidden)\n" in out
    code, out, err = await check("--allow-unread", "-v")
    assert (code, err) == (0, "")
    assert "√ Every caBundle" not in out
    assert "- Node shapes match the nodes: you may not list nodes -A (403 Forbidden)" in out


FAULTS = {"pods": 403, "nodes": 500, "namespaces": objects_stub.GARBAGE}


async def test_a_snapshot_has_the_reason_for_each_kind_that_could_not_be_read(cluster, tmp_path):
    cluster.stored["/version"] = {"gitVersion": "v1.35.0"}
    cluster.fault = lambda asked: 403 if asked.method == "POST" else FAULTS.get(asked.path.rpartition("/")[2])
    async with api_stub.connected(tmp_path, cluster.port) as client:
        seen = await snapshots.read_cluster(client)
    assert seen.unread["own-pods"] == "you may not list pods -n railwright-system (403 Forbidden)"
    assert "list pods -A" in seen.unread["pods"]
    assert "answers 500: no; " in seen.unread["nodes"]
    assert "not as a Kubernetes API server does" in seen.unread["namespaces"]
    assert not {"hypernodes", "networks"} & seen.unread.keys()
    assert seen.find_object("policy") is None
    assert "policy" not in seen.unread, "what does not exist is an answer"


@pytest.fixture
def closed_port():
    with reserved_ports.reserve() as port:
        yield port


def test_check_names_an_unreachable_api_server_in_one_sentence_with_the_fix(tmp_path, capsys, closed_port):
    assert main(["check", "--kubeconfig", api_stub.kubeconfig(tmp_path, closed_port)]) == 2
    captured = capsys.readouterr()
    row, sentence, fix, see, folded, summary = captured.out.splitlines()
    assert captured.err == ""
    assert row == "× API server answers"  # noqa: RUF001 - the mark
    assert sentence.startswith(f"    cannot reach http://127.0.0.1:{closed_port}: connection refused; ")
    assert (fix[:9], see) == ("    fix: ", "    see: railwright check --explain api-reachable")
    assert folded == f"- {ROWS - 1} checks skipped until this is fixed: API server answers"
    assert summary == f"{ROWS} checks: 1 failed, {ROWS - 1} skipped (-v lists all)"


async def test_the_requests_that_the_extenders_pods_have_answered_are_read_through_the_proxy(installation):
    counters = metrics.ExtenderMetrics()
    for path, outcome in [
        ("/scheduler/filter", "ok"),
        ("/volcano/{scope}/allocate", "ok"),
        ("/scheduler/filter", "403"),
        ("/explain/{namespace}/{pod}", "ok"),
    ]:
        counters.requests.labels(path, outcome).inc()
    counters.cache_age_seconds.labels("nodes").set(301)
    counters.cache_age_seconds.labels("pods").set(299)
    installation.metrics = {
        "railwright-extender-0": counters.format_exposition().decode(),
        "railwright-extender-1": "<html>a login</html>",
    }
    client = await clients.connect(installation.kubeconfig)
    try:
        seen = await snapshots.read_cluster(client)
    finally:
        await client.close()
    assert seen.scheduler_requests == {"railwright-extender-0": 2}
    assert seen.stale_kinds == {"railwright-extender-0": ["nodes"]}
    assert seen.unread == {}
