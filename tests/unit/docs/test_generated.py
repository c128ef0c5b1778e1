"""Generated pages are up to date, complete, and the same every time."""

import json
import re
import xml.etree.ElementTree as ET

import jsonschema
import pages
import pytest

from documentation import (
    content,
    examples,
    markdown,
    placement,
    policy,
    rules,
)
from railwright.cli.explanation import previews
from railwright.fabric import names
from railwright.fabric.lint import engine
from railwright.fabric.policy import schema


def test_every_generated_part_and_picture_is_up_to_date():
    stale = [str(path.relative_to(pages.ROOT)) for path in content.list_stale()]
    assert stale == [], "run `make docs`, or `python -m documentation`"


def test_an_edited_part_is_generated_again_and_the_text_around_it_stays():
    text = "a\n<!-- generated: x 1 -->\nedited\n<!-- end of generated -->\nb <!-- generated: x 2 -->\n"
    text += "<!-- end of generated -->"
    assert markdown.fill(text, {"x": lambda word: f"made {word}"}) == (
        "a\n<!-- generated: x 1 -->\n\nmade 1\n\n<!-- end of generated -->\nb <!-- generated: x 2 -->\n\nmade 2\n\n"
        "<!-- end of generated -->"
    )
    with pytest.raises(markdown.UnknownBlockError, match="y: unknown part; the parts are x"):
        markdown.fill("<!-- generated: y -->\n<!-- end of generated -->", {"x": str})


def test_every_generated_part_has_an_end_mark():
    for page in pages.PAGES:
        text = page.read_text()
        marks = re.findall(r"^<!-- (generated:|end of generated)", text, re.MULTILINE)
        assert marks == ["generated:", "end of generated"] * (len(marks) // 2), page


def test_every_key_of_the_policy_has_a_meaning_and_stands_in_the_reference():
    reference = policy.format_reference()
    for section in schema.build()["$defs"].values():
        for key, value in section.get("properties", {}).items():
            assert value["description"]
            assert f"| `{key}` |" in reference
    assert "| `gidIndex` | integer | unset |" in reference
    assert "-1 to 255." in reference
    assert "| `debug` | `ABORT`, `INFO`, `TRACE`, `VERSION`, `WARN` | unset |" in reference


def test_every_rule_has_a_section_with_its_examples_and_messages():
    page = rules.format_all()
    for rule in engine.RULES:
        (part,) = re.findall(rf"## {rule.code}: .*?(?=\n## |\Z)", page, re.DOTALL)
        examples = rules.list_examples(rule)
        assert part.count("```text") == len(examples.good) + len(examples.bad)
        assert part.count(f"\n# {rule.code} ") >= len(examples.bad)
        assert f"[{rule.code}](#{rule.code.lower()})" in rules.format_overview()


def test_every_key_of_railwright_is_on_the_page_of_labels():
    page = (pages.DOCS / "reference" / "labels.md").read_text()
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")}
    assert [key for key in sorted(ours - {names.POLICY_API_VERSION}) if f"`{key}`" not in page] == []


def test_every_documented_refusal_occurs():
    for case in examples.CASES:
        given = examples.preview_case(case)
        assert previews.is_rejected(given) or given.warnings, case.title


def test_the_pages_of_sites_show_changes_with_a_reason_each():
    for site in ("360-roce", "360-infiniband", "vivo-roce", "sriov-8-rail", "pvrdma-mpi", "ack-erdma"):
        report = examples.show_admission(site)
        rows = re.findall(r"^\| (?!change|---)(.+?) \| (.+?) \|$", report, re.MULTILINE)
        assert rows
        assert "+    railwright.io/injection" in report


def test_the_pictured_placements_match_the_text_of_the_page():
    by = {placed_gang.policy: placed_gang for placed_gang in placement.place_gang()}
    assert by["railwright"].bandwidth == by["optimum"].bandwidth, "the page calls it the best there is"
    assert by["railwright"].bandwidth < 1, "the page says that full bandwidth is not to be had"
    assert by["none"].leaves > by["greedy"].leaves
    assert set(by["railwright"].hosts).isdisjoint(placement.list_busy_nodes(placement.DRAWN))
    assert len(set(by["railwright"].hosts)) == placement.GANG
    assert placement.mean("railwright") == placement.mean("optimum"), "nor does the choice of the draw flatter it"


def test_a_picture_shows_each_rank_once_each_busy_node_and_says_it_in_words():
    gang = placement.GangPlacement("none", 0.5, leaves=1, crossings=0, hosts=(1, 0), busy=(2,))
    svg = placement.draw_fabric(gang, {"leaf-1": [0, 1], "leaf-2": [2]}, {"leaf-1": "a", "leaf-2": "a"})
    tree = ET.fromstring(svg)  # noqa: S314 - our own
    texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert tree.attrib["aria-label"] == "no extender: 1 leaf, modelled bandwidth 0.50"
    assert sorted(text for text in texts if text in {"0", "1"}) == ["0", "1"]
    assert svg.count(placement._STYLES["busy"]) == 1
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_a_comparison_shows_both_placements_beside_each_other():
    gangs = (
        placement.GangPlacement("none", 0.5, leaves=1, crossings=0, hosts=(0,), busy=(1,)),
        placement.GangPlacement("greedy", 0.5, leaves=1, crossings=0, hosts=(2,), busy=(1,)),
    )
    svg = placement.compare(gangs, {"leaf-1": [0, 1], "leaf-2": [2]}, {"leaf-1": "a", "leaf-2": "b"})
    tree = ET.fromstring(svg)  # noqa: S314 - our own
    assert tree.attrib["aria-label"] == "; ".join(f"{gang.title}: {gang.result}" for gang in gangs)
    left, right = tree.iter("{http://www.w3.org/2000/svg}g")
    shift, width = float(right.attrib["transform"][10:-1]), float(tree.attrib["viewBox"].split()[2])
    assert left.attrib["transform"] == "translate(0)"
    assert shift == width / 2
    for half, gang in ((left, gangs[0]), (right, gangs[1])):
        texts = [text.text for text in half.iter("{http://www.w3.org/2000/svg}text")]
        assert texts.count(gang.title) == texts.count("0") == 1
        boxes = [rect.attrib for rect in half.iter("{http://www.w3.org/2000/svg}rect")]
        assert all(float(box["x"]) + float(box["width"]) <= shift for box in boxes)


def test_every_key_of_the_policy_has_an_example_that_its_schema_accepts():
    definitions = schema.build()["$defs"]
    for name, section in definitions.items():
        for key, value in section.get("properties", {}).items():
            is_section = "#/$defs/" in json.dumps(value) and value.get("$ref") != "#/$defs/Transport"
            assert len(value.get("examples", ())) == (0 if is_section else 1), f"{name}.{key}"
            for example in value.get("examples", ()):
                jsonschema.Draft202012Validator({**value, "$defs": definitions}).validate(example)
