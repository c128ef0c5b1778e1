"""Formats the lint rules as a page: title, explanation, source and an example of each.

The examples are the rules' own test cases, and the messages shown are those that the rules give for them.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from documentation import markdown
from railwright.fabric.lint import engine, rule_types
from railwright.fabric.lint.rules import claims, manifests

_EXAMPLES = markdown.ROOT / "tests" / "data" / "lint" / "examples"
_OWN = {"title", "settings", "fabric_context"}  # fields of RankContext that are formatted separately
RULES = (*engine.RULES, *claims.RULES, *manifests.RULES)


def format_rules() -> str:
    """Return a section for each rule, in Markdown. Its anchor is the rule's code in lower case."""
    return "\n\n".join(map(_format_rule, RULES))


@functools.cache
def read_examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the examples of each rule by its code: `bad` ones, which it reports, and `good` ones."""
    return {
        code: examples
        for path in sorted(_EXAMPLES.glob("*.yaml"))
        for code, examples in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items()
    }


def build_ranks(written: Mapping[str, Any]) -> rule_types.RankContext:
    """Return an example as ranks that lint checks. A mapping in `settings` has environment variables."""
    fields = {key: written[key] for key in rule_types.RankContext.__struct_fields__ if key in written}
    entries = fields.pop("settings", ())
    if isinstance(entries, Mapping):
        entries = [
            {"name": name, "value": value, "where": f"env[{index}]"}
            for index, (name, value) in enumerate(entries.items())
        ]
    return msgspec.convert({**fields, "title": "a rank", "settings": entries}, rule_types.RankContext)


def split_docstring(rule: rule_types.Rule) -> tuple[str, str, str]:
    """Return title, explanation and sources in the docstring of a rule."""
    title, _, rest = (inspect.getdoc(rule.check) or "").partition("\n\n")
    explanation, _, source = rest.partition("Source:")
    return title.rstrip("."), explanation.strip(), " ".join(source.split()).rstrip(".")


def _format_rule(rule: rule_types.Rule) -> str:
    title, explanation, source = split_docstring(rule)
    parts = [
        f"## {rule.code}: {title} {{ #{rule.code.lower()} }}",
        f"*{rule.severity}*. {_escape_markdown(explanation)}",
    ]
    example = next(iter(read_examples().get(rule.code, {}).get("bad", ())), None)
    if example is not None:
        messages = "".join(f"\n# {rule.code} {message}" for message in example["messages"])
        parts.append(f"```text\n{_format_example(example)}{messages}\n```")
    return "\n\n".join([*parts, f"Source: {_escape_markdown(source)}."])


def _format_example(example: Mapping[str, Any]) -> str:
    if "devices" in example and "requests" in example["devices"]:
        return yaml.safe_dump(example["devices"], sort_keys=False, width=1000).rstrip()
    ranks = build_ranks(example)
    return "\n".join([*map(_format_setting, ranks.settings), *(f"# {line}" for line in _list_context(ranks))])


def _format_setting(setting: rule_types.Setting) -> str:
    origin = "" if setting.where.startswith("env") else f"   # {setting.where}"
    return f"{setting.name}={'(from elsewhere)' if setting.value is None else setting.value}{origin}"


def _list_context(ranks: rule_types.RankContext) -> Iterator[str]:
    """Yield the fields of an example that differ from their defaults."""
    for given, blank in ((ranks, rule_types.RankContext("")), (ranks.fabric_context, rule_types.FabricContext())):
        defaults = msgspec.structs.asdict(blank)
        for key, value in msgspec.structs.asdict(given).items():
            if key not in _OWN | {"fabric"} and value != defaults[key]:
                yield f"{key.replace('_', ' ')}: {_format_value(value)}"


def _format_value(value: Any) -> str:
    if isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return " ".join(map(_format_value, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_value(item)}".strip() for key, item in value.items()) or "none"
    return str(value)


def _escape_markdown(text: str) -> str:
    """Escape the text of a rule for Markdown."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("|", "\\|")
