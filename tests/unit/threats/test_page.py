"""The tables of docs/security.md have a row for each threat, and every test that they name exists."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "security.md"
THREATS, _, TESTS = PAGE.read_text().partition("<details markdown>")
ROWS = dict(re.findall(r"^\| T(\d+) \| (.*) \|$", TESTS.partition("</details>")[0], re.MULTILINE))
CITED = re.compile(r"\[(test_\w+)\]\(([\w./-]+\.py)\)")


def test_each_threat_has_its_row_in_order():
    assert [int(number) for number in ROWS] == list(range(1, 25))
    threats = re.findall(r"^\| T(\d+) \| [^|]+ \| [^|]+ \|$", THREATS, re.MULTILINE)
    assert [int(number) for number in threats] == list(range(1, 25))


@pytest.mark.parametrize("number", ROWS)
def test_every_test_that_the_page_names_exists(number):
    cited = CITED.findall(ROWS[number])
    assert cited, f"T{number} names no test"
    for name, path in cited:
        text = (PAGE.parent / path).read_text()
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"T{number}: {path} has no {name}"
