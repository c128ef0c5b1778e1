"""What a run has seen of the faults, and the table that tells of it: fault, expected, seen, test.

A plugin, loaded by tests/conftest.py. `fault.saw("...")` of a test `test_NN_...` records one short sentence with what
was measured; `--fault-report FILE` writes the table into FILE, between its two markers. A row whose test did not run
keeps what FILE says of it.
"""

import pathlib
import re
from collections import defaultdict

import pytest
import yaml

FAULTS = pathlib.Path(__file__).resolve().parents[1] / "data" / "faults.yaml"
FIRST, LAST = 1, 62
BEGIN, END = "<!-- faults: written by `make faults`, do not edit -->", "<!-- faults end -->"
HEADER = "| # | fault | expected | seen | test |\n|---|---|---|---|---|\n"
NAME = re.compile(r"test_(\d\d)_")

_seen: dict[int, list[str]] = defaultdict(list)
_tests: dict[int, list[str]] = defaultdict(list)
_failed: set[int] = set()


class Fault:
    """The fault a test is about."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sentences: list[str] = []

    def saw(self, sentence: str) -> None:
        """Record what was seen, with its numbers: "12,004 creates, 0 failed"."""
        self.sentences.append(sentence)


def faults() -> dict[int, dict]:
    """The faults by number."""
    read: dict[int, dict] = yaml.safe_load(FAULTS.read_text())
    return read


def number_of(name: str) -> int | None:
    """The fault a test's name tells."""
    found = NAME.match(name)
    return int(found[1]) if found else None


@pytest.fixture
def fault(request) -> Fault:
    """The fault of this test, by the number in its name; a test that passes without having seen anything fails."""
    number = number_of(request.node.name)
    assert number is not None, "a test of a fault is called test_NN_..."
    return Fault(number)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    result = yield
    fault = pyfuncitem.funcargs.get("fault")
    if isinstance(fault, Fault):
        assert fault.sentences, "the test says nothing of what it has seen: fault.saw(...)"
        pyfuncitem.user_properties.append(("seen", "; ".join(fault.sentences)))
    return result


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-report", metavar="FILE", help="write what was seen of the faults into this page")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path, _, name = report.nodeid.partition("::")
    number = number_of(name)
    if number is None or "faults/" not in path:
        return
    link = (path, name.partition("[")[0])
    if report.failed:
        _failed.add(number)
    if report.when == "call" or report.failed:
        if link not in _tests[number]:
            _tests[number].append(link)
        _seen[number].extend(
            text for key, text in report.user_properties if key == "seen" and text not in _seen[number]
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--fault-report")
    if target and not hasattr(session.config, "workerinput"):
        write(pathlib.Path(target))


def write(page: pathlib.Path) -> None:
    """The table into its page, which may be new."""
    text = page.read_text() if page.exists() else f"# Reliability\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(rows(old))}{END}{after}")


def rows(text: str) -> dict[int, str]:
    """The lines of a table by their number."""
    return {int(found[1]): found[0] for found in re.finditer(r"^\| (\d+) \|.*$", text, re.MULTILINE)}


def table(old: dict[int, str]) -> str:
    """Every fault, one row each."""
    lines = []
    for number, each in faults().items():
        kept = old.get(number, "").split(" | ")[3:]
        seen, test = (kept[0], kept[1].removesuffix(" |")) if len(kept) == 2 else ("not run yet", "")
        if "cannot" in each:
            seen, test = f"cannot be made here: {each['cannot']}", ""
        elif number in _tests:
            seen = "**failed**" if number in _failed else "; ".join(_seen[number])
            test = ", ".join(
                f"[{path.rpartition('/')[2]}](../{path})" for path in sorted({path for path, _ in _tests[number]})
            )
        cells = (str(number), each["fault"], each["expected"], seen, test)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |\n")
    return HEADER + "".join(lines)
