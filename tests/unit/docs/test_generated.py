"""Generated pages are up to date, complete and deterministic."""

import json
import re

import jsonschema
import pages

from documentation import content, examples, policy, rules
from railwright.fabric import names
from railwright.fabric.lint.rules import manifests
from railwright.fabric.policy import schema


def test_generated_parts_of_pages_are_up_to_date():
    stale = [str(path.relative_to(pages.ROOT)) for path in content.list_outdated_files()]
    assert stale == [], "run `make docs`, or `python -m documentation`"


def test_every_generated_part_of_a_page_has_an_end_mark():
    for page in pages.PAGES:
        text = page.read_text()
        marks = re.findall(r"^<!-- (generated:|end of generated)", text, re.MULTILINE)
        assert marks == ["generated:", "end of generated"] * (len(marks) // 2), page


def test_every_policy_key_is_in_the_reference_with_a_valid_example():
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


def test_every_lint_rule_has_a_section_with_its_source_and_an_example():
    page = rules.format_rules()
    for rule in rules.RULES:
        (part,) = re.findall(rf"## {rule.code}: .*?(?=\n## |\Z)", page, re.DOTALL)
        assert all(rules.split_docstring(rule))
        assert f"\n# {rule.code} " in part or rule in manifests.RULES


def test_every_label_and_annotation_of_railwright_is_in_the_interface():
    page = (pages.DOCS / "interface.md").read_text()
    ours = {value for value in vars(names).values() if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")}
    assert [key for key in sorted(ours - {names.POLICY_API_VERSION}) if f"`{key}`" not in page] == []


def test_every_documented_mistake_is_rejected_or_gets_a_warning():
    for case in examples.MISTAKES:
        given = examples.preview_mistake(case)
        assert given.is_rejected or given.warnings, case.title
