"""Hints of rows, and the sections of the page that explain them."""

import re

import installations
import msgspec
from broken_installations import assess_trees

from railwright.cli import output
from railwright.cli.checking import command

PAGE = (installations.ROOT / "docs" / "reference" / "check.md").read_text()


def test_the_fields_of_the_json_answer_are_the_documented_ones():
    results = assess_trees(installations.healthy())
    answer = msgspec.to_builtins(command.build_document(results, server="s", good=True))
    documented = set(re.findall(r"`(\w+|checks\[\]\.\w+)`", PAGE[PAGE.index("## JSON") : PAGE.index("## The checks")]))
    fields = set(answer) | {f"checks[].{field}" for field in answer["checks"][0]} | set(answer["counts"])
    assert documented == fields


def test_control_characters_from_the_cluster_are_escaped(capsys):
    trees = installations.healthy()
    trees["policy"][0]["data"] = {"x\x1b[2J": ""}
    lines = list(command.format_report(assess_trees(trees)))
    output.print_lines(lines)
    printed = capsys.readouterr().out
    assert "it has x\\x1b[2J" in printed
    assert "\x1b" not in printed
