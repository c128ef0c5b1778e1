"""Counts on the page about the state of the project."""

import re

import pages

from railwright.cli.checking import command


def test_the_number_of_rows_is_that_of_the_command():
    page = (pages.DOCS / "evidence" / "status.md").read_text()
    (count,) = re.findall(r"`railwright check` \| works: (\d+) rows", page)
    assert int(count) == len(command.ROWS)
