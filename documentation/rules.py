"""Formats the lint rules as a page: title, explanation, source and examples of each rule.

The examples are the rules' own test cases, and the messages shown are those that the rules give for them.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from documentation import markdown
from railwright.fabric import views
from railwright.fabric.lint import engine, rule_types
from railwright.fabric.lint.rules import claims

_EXAMPLES = markdown.ROOT / "tests" / "data" / "lint" / "examples"
_OWN = {"title", "settings", "fabric_context"}  # fields of RankContext that are formatted separately


def format_overview() -> str:
    """Return a table with a row for each rule, in Markdown."""
    rules = rule_types.read_descriptions().values()
    rows = ((f"[{rule.code}](#{rule.code.lower()})", rule.severity, rule.title) for rule in rules)
    return markdown.format_table(("rule", "severity", "message"), rows)


def format_all() -> str:
    """Return a section for each rule, in Markdown. Its anchor is the rule's code in lower case."""
    sections = [*map(_format_rule, engine.RULES), *map(_format_claim_rule, claims.RULES)]
    manifests = (rule_types.REPEATED_KEY, rule_types.REJECTED, rule_types.WARNED)
    sections += ["\n\n".join(_format_head(code)) for code in manifests]
    return "\n\n".join(sections)


class Example(NamedTuple):
    """Ranks that a rule reports with these messages, or does not report."""

    title: str
    ranks: rule_types.RankContext
    messages: Sequence[str] = ()


class Examples(NamedTuple):
    """Ranks that a rule reports, ranks that it does not report, and some that only tests use, with what they expect."""

    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    boundaries: tuple[tuple[rule_types.RankContext, bool], ...]


class ClaimExample(msgspec.Struct, forbid_unknown_fields=True):
    """`devices` of a template of claims, or the spec of a pod and `devices` of templates by name."""

    devices: dict[str, Any] | None = None
    spec: dict[str, Any] = {}
    templates: dict[str, dict[str, Any]] = {}
    messages: list[str] = []

    def check(self, rule: claims.ClaimRule) -> tuple[claims.ClaimViolation, ...]:
        """Return what the rule reports."""
        if self.devices is not None:
            return tuple(rule.check_claim(claims.ClaimContext("", claims.read_devices(self.devices))))
        templates = {name: claims.read_devices(devices) for name, devices in self.templates.items()}
        pod = claims.PodClaimContext("", msgspec.convert(self.spec, views.PodSpec), templates)
        return tuple(rule.check_pod(pod))


class ClaimExamples(msgspec.Struct, forbid_unknown_fields=True):
    """A claim or pod that a rule reports, and one that it does not report."""

    bad: ClaimExample
    good: ClaimExample


def list_examples(rule: rule_types.Rule) -> Examples:
    """Return the examples of a rule about settings."""
    written = _read_examples()[rule.code]
    bad, good = (
        tuple(Example(entry["title"], build_ranks(entry), entry.get("messages", ())) for entry in written[kind])
        for kind in ("bad", "good")
    )
    boundaries = tuple((build_ranks(entry), bool(entry["reported"])) for entry in written.get("boundaries", ()))
    return Examples(bad, good, boundaries)


def list_claim_examples(rule: claims.ClaimRule) -> ClaimExamples:
    """Return the examples of a rule about claims."""
    return msgspec.convert(_read_examples()[rule.code], ClaimExamples)


def build_ranks(written: Mapping[str, Any]) -> rule_types.RankContext:
    """Return ranks as an example writes them. `settings` by name are those of the environment."""
    fields = {key: written[key] for key in rule_types.RankContext.__struct_fields__ if key in written}
    entries = fields.pop("settings", ())
    if isinstance(entries, Mapping):
        entries = [
            {"name": name, "value": value, "where": f"env[{index}]"}
            for index, (name, value) in enumerate(entries.items())
        ]
    return msgspec.convert({**fields, "title": "a rank", "settings": entries}, rule_types.RankContext)


@functools.cache
def _read_examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the examples by code of their rule."""
    return {
        code: examples
        for path in sorted(_EXAMPLES.glob("*.yaml"))
        for code, examples in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader).items()
    }


def _format_head(code: str) -> list[str]:
    rule = rule_types.read_descriptions()[code]
    return [
        f"## {rule.code}: {rule.title} {{ #{rule.code.lower()} }}",
        f"*{rule.severity}*, `{rule.name}`. {_escape(rule.explanation)}",
        f"Source: {_escape(rule.source)}.",
    ]


def _format_rule(rule: rule_types.Rule) -> str:
    examples = list_examples(rule)
    parts = [
        *_format_head(rule.code),
        *_format_examples("Reported for", examples.bad, rule),
        *_format_examples("Not reported for", examples.good, rule),
    ]
    return "\n\n".join(parts)


def _format_claim_rule(rule: claims.ClaimRule) -> str:
    examples = list_claim_examples(rule)
    is_pod = examples.bad.devices is None
    subject = "a pod with this `spec`" if is_pod else "a ResourceClaimTemplate with these `devices`"
    messages = "".join(f"# {rule.code} {violation.message}\n" for violation in examples.bad.check(rule))
    parts = [
        *_format_head(rule.code),
        f"Reported for {subject}:\n\n```yaml\n{_dump(examples.bad)}{messages}```",
        f"Not reported for:\n\n```yaml\n{_dump(examples.good)}```",
    ]
    return "\n\n".join(parts)


def _dump(example: ClaimExample) -> str:
    templates = {f"devices of ResourceClaimTemplate {name}": devices for name, devices in example.templates.items()}
    tree = {**example.spec, **templates} if example.devices is None else example.devices
    return yaml.safe_dump(tree, sort_keys=False, width=1000)


def _format_examples(word: str, examples: Iterable[Example], rule: rule_types.Rule) -> Iterator[str]:
    """Yield each example: its settings, the context of its ranks, and the messages of the rule."""
    for example in examples:
        context = "; ".join(_list_context(example.ranks))
        findings = [finding for finding in engine.check(example.ranks) if finding.code == rule.code]
        messages = "".join(f"\n# {rule.code} {finding.message}" for finding in findings)
        lines = "\n".join(_format_setting(setting) for setting in example.ranks.settings) or "(no settings)"
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
