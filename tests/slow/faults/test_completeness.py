"""Each fault has tests, here or in another layer, or a reason why it cannot have one."""

import ast
import pathlib

import fault_report

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "evidence" / "status.md"
FAULTS = fault_report.faults()
KEYS = {"fault", "where", "expected"}
OPTIONAL = {"cannot", "shown"}


def functions():
    """Yield the number, the name and the argument names of every test of a fault."""
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                number = fault_report.number_of(node.name)
                if number is not None:
                    yield number, node.name, {arg.arg for arg in node.args.args}


def test_each_fault_has_a_test_or_the_reason_why_not():
    tested = {number for number, _, _ in functions()}
    assert set(FAULTS) <= set(range(fault_report.FIRST, fault_report.LAST + 1))
    assert tested == {number for number, fault in FAULTS.items() if not OPTIONAL & fault.keys()}
    assert all((HERE.parents[2] / path).exists() for fault in FAULTS.values() for path in fault.get("shown", ()))


def test_every_fault_has_its_expected_result():
    for number, fault in FAULTS.items():
        assert KEYS <= fault.keys() <= KEYS | OPTIONAL, number
        assert fault["where"] in "PAFC"


def test_every_test_records_its_result():
    assert [name for _, name, arguments in functions() if "fault" not in arguments] == []


def test_the_page_has_a_row_for_each_fault():
    text = PAGE.read_text().partition(fault_report.BEGIN)[2]
    results, observations = fault_report.rows(text), fault_report.observations(text)
    assert set(results) == set(observations) == set(FAULTS)
    for number, fault in FAULTS.items():
        assert results[number] == f"| {number} | {fault['fault']} | {fault['expected']} |"
        assert f"](../../tests/{'' if 'shown' in fault else 'slow/faults/'}" in observations[number]
