"""Generated pages are up to date, complete and deterministic."""

import json
import re

import jsonschema
import pages

from documentation import content, examples, policy, rules
from railwright.fabric import names
from railwright.fabric.lint.rules import manifests
from railwright.fabric.policy import schema


def test_every_generated_part_and_picture_is_up_to_date():
    stale = [str(path.relative_to(pages.ROOT)) for path in content.list_stale()]
    assert stale == [], "run `make docs`, or `python -m documentation`"


def test_every_generated_part_has_an_end_mark():
    for page in pages.PAGES:
        text = page.read_text()
        marks = re.findall(r"^<!-- (generated:|end of generated)", text, re.MULTILINE)
        assert marks == ["generated:", "end of generated"] * (len(marks) // 2), page


def test_every_key_of_the_policy_stands_in_the_reference_with_an_example_that_its_schema_accepts():
    reference, definitions = policy.format_reference(), schema.build_schema()["$defs"]
    for name, section in definitions.items():
        for key, value in section.get("properties", {}).items():
            assert value["description"]
            assert f"| `{key}` |" in reference
            is_section = "#/$defs/" in json.dumps(value) and value.get("$ref") != "#/$defs/Transport"
            assert len(value.get("examples", ())) == (0 if is_section else 1), f"{name}.{key}"
            for example in value.get("examples", ()):
                jsonschema.Draft202012Validator({**value, "$defs": definitions}).validate(example)
    assert "| `gidIndex` | integer | unset |" in reference
    assert "-1 to 255." in reference
    assert '| `delivery` | `auto`, `files` | `"auto"` |' in reference


def test_every_rule_has_a_section_with_its_source_and_an_example():
    page = rules.format_all()
    for rule in rules.RULES:
        (part,) = re.findall(rf"## {rule.code}: .*?(?=\n## |\Z)", page, re.DOTALL)
        assert all(rules.read_docstring(rule))
        assert f"\n# {rule.code} " in part or rule in manifests.RULES


def test_every_key_of_railwright_is_in_the_interface():
    page = (pages.DOCS / "interface.md").read_text()
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")}
    assert [key for key in sorted(ours - {names.POLICY_API_VERSION}) if f"`{key}`" not in page] == []


def test_every_documented_refusal_occurs():
    for case in examples.CASES:
        given = examples.preview_case(case)
        assert given.is_rejected or given.warnings, case.title
