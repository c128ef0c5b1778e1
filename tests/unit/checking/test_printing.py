"""Output of a run: rows in order, those that wait in one line, a summary; and what --wait holds back."""

import msgspec

from railwright.cli.checking import check_rows, printing


def result(check, state="ok", *, group="one", **fields):
    row = check_rows.Result(group, check, f"{check} holds", "", check_rows.State(state), "", "do this", False)
    return msgspec.structs.replace(row, **fields)


FAILED = result("policy", "fail", detail="there is none")
WAITING = [
    result(f"rail-{index}", "skip", group="two", waits_for="policy", detail="fix policy first") for index in (1, 2)
]
UNREAD = [result(f"secret-{index}", "skip", unread=True, detail="you may not get secrets") for index in (1, 2, 3)]


def text(lines):
    return ["".join(part for part, _ in line) for line in lines]


def test_rows_that_wait_or_could_not_be_read_are_one_line_for_each_reason():
    results = [result("api"), *UNREAD, FAILED, *WAITING]
    assert text(printing.format_report(results)) == [
        "one",
        "√ api holds",
        "× policy holds",  # noqa: RUF001 - the mark
        "    there is none",
        "    fix: do this",
        "    see: railwright check --explain policy",
        "",
        "- 3 checks skipped because you may not get secrets (-v lists them)",
        "- 2 checks skipped until this is fixed: policy holds (-v lists them)",
        "7 checks: 1 failed (policy), 1 passed, 5 skipped",
    ]


def test_verbose_lists_each_of_them():
    lines = text(printing.format_report([result("api"), FAILED, *WAITING], verbose=True))
    assert "- rail-1 holds: fix policy first" in lines
    assert lines[lines.index("two") - 1] == ""
    assert not any("-v lists" in line for line in lines)


def test_a_row_is_printed_once_and_again_if_its_state_changes():
    report = printing.Report(verbose=False)
    assert text(report.add(result("api"))) == ["one", "√ api holds"]
    assert text(report.add(result("api"))) == []
    assert text(report.add(result("api", "fail")))[0] == "× api holds"  # noqa: RUF001 - the mark
