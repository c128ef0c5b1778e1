"""What `railwright check` prints: the report, its JSON, the exit code, and the explanation of a row."""

import contextlib
import os
import re

import installations
import msgspec
import pytest
import terminals
from broken_installations import assess_trees

from railwright.cli import output
from railwright.cli.__main__ import main
from railwright.cli.checking import command, rows


def result(check, state="ok", *, group="one", **fields):
    return rows.Result(rows.State(state), group=group, check=check, name=f"{check} holds", hint="do this", **fields)


FAILED = result("policy", "fail", detail="there is none")
WAITING = [
    result(f"rail-{index}", "skip", group="two", waits_for="policy", detail="fix policy first") for index in (1, 2)
]
UNREAD = [result(f"secret-{index}", "skip", unread=True, detail="you may not get secrets") for index in (1, 2, 3)]


def text(lines):
    return ["".join(part for part, _ in line) for line in lines]


def test_the_report_lists_problems_and_counts_skipped_checks_by_reason():
    unknown = result("topology", "skip", group="two", detail="nodes have no label of a leaf")
    results = [result("api"), result("version"), *UNREAD, FAILED, unknown, *WAITING, result("pods", group="three")]
    assert text(command.format_report(results)) == [
        "× policy holds",  # noqa: RUF001 - the mark
        "    there is none",
        "    fix: do this",
        "    see: railwright check --explain policy",
        "- 3 checks skipped because you may not get secrets",
        "- 2 checks skipped until this is fixed: policy holds",
        "10 checks: 1 failed, 3 passed, 6 skipped (-v lists all)",
    ]


def test_the_verbose_report_lists_each_check_by_group():
    lines = text(command.format_report([result("api"), FAILED, *WAITING], verbose=True))
    assert lines[:2] == ["one", "√ api holds"]
    assert "- rail-1 holds: fix policy first" in lines
    assert lines[lines.index("two") - 1] == ""
    assert lines[-1] == "4 checks: 1 failed, 1 passed, 2 skipped"


OK, WARNED, FAILED_ROW, UNREAD_ROW = (
    result("row", state, unread=state == "skip") for state in ("ok", "warn", "fail", "skip")
)


@pytest.mark.parametrize(
    ("results", "options", "code"),
    [
        ([OK, WARNED], {}, 0),
        ([OK, WARNED], {"strict": True}, 1),
        ([OK, FAILED_ROW, UNREAD_ROW], {}, 1),
        ([OK, UNREAD_ROW], {}, 2),
        ([OK, UNREAD_ROW], {"allow_unread": True}, 0),
        ([OK, FAILED_ROW, UNREAD_ROW], {"allow_unread": True}, 1),
        ([result("row", "fail", unread=True)], {"allow_unread": True}, 2),
    ],
)
def test_check_exits_with_1_for_failures_and_2_for_unread_objects(results, options, code):
    assert command.get_exit_code(results, **{"strict": False, "allow_unread": False} | options) == code


def test_a_status_line_is_cut_at_the_width_of_the_terminal(monkeypatch):
    """Names of many failed rows fill several lines, of which only the last can be erased."""
    monkeypatch.setenv("TERM", "xterm-256color")
    ours, theirs = terminals.open_terminal(20)
    with os.fdopen(theirs, "w") as terminal, contextlib.redirect_stderr(terminal):
        output.show_status("waiting for policy-exists, secret")
        output.show_status("waiting for secret\n")
        output.show_status("waiting for secret")
    assert terminals.read_all(ours).split("\r\x1b[K") == [
        "",
        "waiting for policy-e",
        "waiting for secret\\n",
        "waiting for secret…",
    ]


# --- JSON and control characters ----------------------------------------------------------------------------

PAGE = (installations.ROOT / "docs" / "reference" / "check.md").read_text()


def test_the_json_of_check_has_exactly_the_documented_fields():
    results = assess_trees(installations.healthy())
    answer = msgspec.to_builtins(command.build_document(results, server="s", good=True))
    documented = set(re.findall(r"`(\w+|checks\[\]\.\w+)`", PAGE[PAGE.index("## JSON") : PAGE.index("## The checks")]))
    fields = set(answer) | {f"checks[].{field}" for field in answer["checks"][0]} | set(answer["counts"])
    assert documented == fields


def test_the_report_escapes_control_characters_in_texts_of_the_cluster(capsys):
    trees = installations.healthy()
    trees["policy"][0]["data"] = {"x\x1b[2J": ""}
    lines = list(command.format_report(assess_trees(trees)))
    output.print_lines(lines)
    printed = capsys.readouterr().out
    assert "it has x\\x1b[2J" in printed
    assert "\x1b" not in printed


# --- --explain ------------------------------------------------------------------------------------------------


def test_check_explain_needs_no_cluster(monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert main(["check", "--explain", "webhook-entries"]) == 0
    stdout = capsys.readouterr().out
    title = "webhook-entries: Webhook configurations exist, and their entries are those of this release"
    assert stdout.startswith(f"{title}\n\nCompares each entry")
    assert "\n- failurePolicy: Ignore lets opted-in pods run over TCP" in stdout
    assert "\n\nFix: apply the webhook configurations again: kubectl apply -k FOLDER" in stdout


def test_check_explain_lists_all_rows_and_suggests_a_row_for_a_misspelt_name(capsys):
    assert main(["check", "--explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(command.ROWS)
    assert main(["check", "--explain", "rail-network"]) == 2
    assert (
        capsys.readouterr().err == "railwright: --explain: there is no row rail-network; did you mean rail-networks?\n"
    )
    assert main(["check", "--explain", "?"]) == 2
    assert "to list all: railwright check --explain" in capsys.readouterr().err
