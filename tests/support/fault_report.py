"""Records the observations of a run of the fault tests, and writes a table of results and a folded one of observations
into a page.

A plugin, loaded by tests/conftest.py. `fault.saw("...")` in a test `test_NN_...` records one short sentence with the
measured values. `--fault-report FILE` writes the tables into FILE, between its two markers. The rows of a fault whose
test did not run stay as they are in FILE.
"""

import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable

import pytest
import yaml

FAULTS = pathlib.Path(__file__).resolve().parents[1] / "data" / "faults.yaml"
FIRST, LAST = 1, 63
BEGIN, END = "<!-- faults: written by `make test-slow PARTS=faults`, do not edit -->", "<!-- faults end -->"
RESULTS = "| # | fault | result |\n|---|---|---|\n"
FOLD, FOLD_END = "\n<details markdown>\n<summary>Observations and tests</summary>\n\n", "\n</details>\n"
FAILED, NOT_RUN = "**failed**; expected: ", "not run yet; expected: "
OBSERVATIONS = "| # | observed | test |\n|---|---|---|\n"
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
        """Record an observation with its numbers: "12,004 creates, 0 failed"."""
        self.sentences.append(sentence)


def faults() -> dict[int, dict]:
    """Return the faults by number."""
    read: dict[int, dict] = yaml.safe_load(FAULTS.read_text())
    return read


def number_of(name: str) -> int | None:
    """Return the number of the fault in a test's name."""
    match = NAME.match(name)
    return int(match[1]) if match else None


@pytest.fixture
def fault(request) -> Fault:
    """Yield the fault of this test, by the number in its name. A test that states no result fails."""
    number = number_of(request.node.name)
    assert number is not None, "a test of a fault is called test_NN_..."
    return Fault(number)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    result = yield
    fault = pyfuncitem.funcargs.get("fault")
    if isinstance(fault, Fault):
        assert fault.sentences, "the test does not state its result: fault.saw(...)"
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
    """Write the tables into their page, which may be new."""
    text = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{format_tables(old)}{END}{after}")


def rows(text: str) -> dict[int, str]:
    """Return the lines of the table of results by number."""
    return _find_rows(text.partition(FOLD)[0])


def observations(text: str) -> dict[int, str]:
    """Return the lines of the table of observations by number."""
    return _find_rows(text.partition(FOLD)[2])


def _find_rows(text: str) -> dict[int, str]:
    return {int(match[1]): match[0] for match in re.finditer(r"^\| (\d+) \|.*$", text, re.MULTILINE)}


def format_tables(old: str) -> str:
    """Return both tables, with a row for each fault. `old` has the results of faults whose tests did not run."""
    results, details = [RESULTS], [FOLD + OBSERVATIONS]
    old_results, old_details = rows(old), observations(old)
    for number, fault in faults().items():
        result = _describe_result(number, fault, old_results.get(number))
        results.append(f"{_format_row(number, fault['fault'], result)}\n")
        if paths := fault.get("shown"):
            old_details[number] = _format_row(number, "in each run of these tests", _link_tests(paths))
        elif number in _tests or number not in old_details:
            links = _link_tests({path for path, _ in _tests[number]})
            old_details[number] = _format_row(number, "; ".join(_seen[number]), links)
        details.append(f"{old_details[number]}\n")
    return "".join([*results, *details, FOLD_END])


def _describe_result(number: int, fault: dict, old: str | None) -> str:
    """Return the expected result, preceded by the failure if the tests did not pass."""
    if "cannot" in fault:
        return f"not tested here: {fault['cannot']}"
    if "shown" in fault:
        return str(fault["expected"])
    problem = old.split(" | ")[2] if old else NOT_RUN
    if number in _tests:
        problem = FAILED if number in _failed else ""
    prefix = next((start for start in (FAILED, NOT_RUN) if problem.startswith(start)), "")
    return prefix + str(fault["expected"])


def _link_tests(paths: Iterable[str]) -> str:
    return ", ".join(f"[{path.rpartition('/')[2]}](../../{path})" for path in sorted(paths))


def _format_row(number: int, *cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in (str(number), *cells)) + " |"
