"""The lint rules as a page: what each says, why, where the fact is from, and its own examples.

Owns the form. The examples are those the rules carry and are tested by; what is said of them is said by the rules.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from railwright.fabric.lint import engine, model

_OWN = {"title", "settings", "site"}  # fields of Ranks that are shown in a form of their own


def overview() -> str:
    """Markdown: a row for each rule."""
    rows = [f"| [{rule.code}](#{rule.code.lower()}) | {rule.severity} | {rule.title} |" for rule in engine.every()]
    return "\n".join(["| rule | severity | says |", "|---|---|---|", *rows])


def all_rules() -> str:
    """Markdown: a part for each rule, with an anchor of its code in small letters."""
    return "\n\n".join(map(_rule, engine.every()))


def _rule(rule: model.Rule) -> str:
    parts = [
        f"## {rule.code}: {rule.title} {{ #{rule.code.lower()} }}",
        f"*{rule.severity}*, `{rule.name}`. {_prose(rule.explanation)}",
        f"Source: {_prose(rule.source)}.",
        *_examples("Said of", rule.bad, rule),
        *_examples("Silent on", rule.good, rule),
    ]
    return "\n\n".join(parts)


def _examples(word: str, examples: Iterable[model.Example], rule: model.Rule) -> Iterator[str]:
    """Each example: its settings, what else is known of its ranks, and the rule's own words on it."""
    for each in examples:
        known = "; ".join(_known(each.ranks))
        said = "".join(f"\n# {rule.code} {one.message}" for one in rule.check(each.ranks))
        lines = "\n".join(_line(setting) for setting in each.ranks.settings) or "(no settings)"
        yield f"{word} {_prose(each.title)}{f' ({known})' if known else ''}:\n\n```text\n{lines}{said}\n```"


def _line(setting: model.Setting) -> str:
    origin = "" if setting.origin is model.Origin.ENV else f"   # {setting.where or setting.origin}"
    return f"{setting.name}={'(from elsewhere)' if setting.value is None else setting.value}{origin}"


def _known(ranks: model.Ranks) -> Iterator[str]:
    """What an example says beside its settings, in the words of the model."""
    plain = msgspec.structs.asdict(model.Ranks(""))
    for key, value in msgspec.structs.asdict(ranks).items():
        if key not in _OWN and value != plain[key]:
            written = ".".join(map(str, value)) if key == "nccl" else value  # a release
            yield f"{key.replace('_', ' ')} {_shown(written)}"
    blank = msgspec.structs.asdict(model.Site())
    for key, value in msgspec.structs.asdict(ranks.site).items():
        if value != blank[key] and key != "fabric":
            yield f"{key.replace('_', ' ')} {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(each)}" for key, each in value.items()) or "none"
    return f"`{value}`"


def _prose(text: str) -> str:
    """Text of a rule as Markdown: what would be markup is shown as written."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("|", "\\|")
