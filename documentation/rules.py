"""Formats the lint rules as a page: title, explanation, source and examples of each rule.

The examples are the rules' own test cases, and the messages shown are those that the rules give for them.
"""

import functools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from railwright.fabric.lint import (
    claim_engine,
    claim_types,
    engine,
    manifest_rules,
    pod_claim_types,
    rule_types,
    settings,
)

_EXAMPLES = pathlib.Path(__file__).parents[1] / "tests" / "data" / "lint" / "examples.yaml"
_OWN = {"title", "settings", "fabric_context"}  # fields of RankContext that are formatted separately


def format_overview() -> str:
    """Return a table with a row for each rule, in Markdown."""
    rules = [*engine.list_rules(), *claim_engine.list_rules(), *manifest_rules.RULES]
    rows = [f"| [{rule.code}](#{rule.code.lower()}) | {rule.severity} | {rule.title} |" for rule in rules]
    return "\n".join(["| rule | severity | message |", "|---|---|---|", *rows])


def format_all() -> str:
    """Return a section for each rule, in Markdown. Its anchor is the rule's code in lower case."""
    sections = [*map(_format_rule, engine.list_rules()), *map(_format_claim_rule, claim_engine.list_rules())]
    sections += ["\n\n".join(_format_head(rule)) for rule in manifest_rules.RULES]
    return "\n\n".join(sections)


class Examples(NamedTuple):
    """Containers that a rule does not report, and those that it reports."""

    good: tuple[rule_types.Example, ...]
    bad: tuple[rule_types.Example, ...]


def list_examples(rule: rule_types.Rule) -> Examples:
    """Return the examples of a rule: its own, and those in tests/data/lint/examples.yaml."""
    written = _read_examples().get(rule.code, {})
    return Examples(
        rule.good + tuple(map(_build_example, written.get("good", ()))),
        rule.bad + tuple(map(_build_example, written.get("bad", ()))),
    )


@functools.cache
def _read_examples() -> Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]:
    text = _EXAMPLES.read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), dict[str, dict[str, list[dict[str, Any]]]])


def _build_example(fields: Mapping[str, Any]) -> rule_types.Example:
    written = dict(fields)
    env = [msgspec.to_builtins(entry) for entry in settings.build_env(**written.pop("settings", {}))]
    title = written.pop("title")
    context = {"title": "a rank", "settings": env, **written}
    return rule_types.Example(title, msgspec.convert(context, rule_types.RankContext))


def _format_head(rule: rule_types.Rule | claim_engine.Rule | manifest_rules.ManifestRule) -> list[str]:
    return [
        f"## {rule.code}: {rule.title} {{ #{rule.code.lower()} }}",
        f"*{rule.severity}*, `{rule.name}`. {_escape(rule.explanation)}",
        f"Source: {_escape(rule.source)}.",
    ]


def _format_rule(rule: rule_types.Rule) -> str:
    examples = list_examples(rule)
    parts = [
        *_format_head(rule),
        *_format_examples("Reported for", examples.bad, rule),
        *_format_examples("Not reported for", examples.good, rule),
    ]
    return "\n\n".join(parts)


def _format_claim_rule(rule: claim_engine.Rule) -> str:
    if isinstance(rule, claim_types.ClaimRule):
        claim = claim_types.ClaimContext("", claim_types.read_devices(rule.bad))
        violations, subject = rule.check(claim), "a ResourceClaimTemplate with these `devices`"
        bad, good = rule.bad, rule.good
    else:
        violations, subject = rule.check(rule.bad.build_context()), "a pod with this `spec`"
        bad, good = _list_parts(rule.bad), _list_parts(rule.good)
    messages = "".join(f"# {rule.code} {violation.message}\n" for violation in violations)
    parts = [
        *_format_head(rule),
        f"Reported for {subject}:\n\n```yaml\n{_dump(bad)}{messages}```",
        f"Not reported for:\n\n```yaml\n{_dump(good)}```",
    ]
    return "\n\n".join(parts)


def _list_parts(example: pod_claim_types.PodClaimExample) -> Mapping[str, Any]:
    """Return the spec of a pod, and the `devices` of the templates that it is checked with."""
    templates = {f"devices of ResourceClaimTemplate {name}": devices for name, devices in example.templates.items()}
    return {**example.spec, **templates}


def _dump(devices: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(devices), sort_keys=False, width=1000)


def _format_examples(word: str, examples: Iterable[rule_types.Example], rule: rule_types.Rule) -> Iterator[str]:
    """Yield each example: its settings, the context of its ranks, and the messages of the rule."""
    for example in examples:
        context = "; ".join(_list_context(example.context))
        messages = "".join(f"\n# {rule.code} {violation.message}" for violation in rule.check(example.context))
        lines = "\n".join(_format_setting(setting) for setting in example.context.settings) or "(no settings)"
        title = f"{word} {_escape(example.title)}{f' ({context})' if context else ''}"
        yield f"{title}:\n\n```text\n{lines}{messages}\n```"


def _format_setting(setting: rule_types.Setting) -> str:
    origin = "" if setting.origin is rule_types.Origin.ENV else f"   # {setting.where or setting.origin}"
    return f"{setting.name}={'(from elsewhere)' if setting.value is None else setting.value}{origin}"


def _list_context(ranks: rule_types.RankContext) -> Iterator[str]:
    """Yield the fields of an example that differ from their defaults."""
    plain = msgspec.structs.asdict(rule_types.RankContext(""))
    for key, value in msgspec.structs.asdict(ranks).items():
        if key not in _OWN and value != plain[key]:
            written = ".".join(map(str, value)) if key == "nccl" else value  # a release
            yield f"{key.replace('_', ' ')} {_format_value(written)}"
    blank = msgspec.structs.asdict(rule_types.FabricContext())
    for key, value in msgspec.structs.asdict(ranks.fabric_context).items():
        if value != blank[key] and key != "fabric":
            yield f"{key.replace('_', ' ')} {_format_value(value)}"


def _format_value(value: Any) -> str:
    if isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return " ".join(map(_format_value, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_format_value(item)}" for key, item in value.items()) or "none"
    return f"`{value}`"


def _escape(text: str) -> str:
    """Escape the text of a rule for Markdown."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("|", "\\|")
