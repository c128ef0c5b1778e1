"""How an account looks: a coloured diff of the pod as YAML, then why each change, then everything that was said.

Owns form only. All text from files passes through `output.visible`.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from railwright.cli import output
from railwright.cli.explanation import account as accounts
from railwright.cli.explanation import manifests
from railwright.fabric import names
from webhook import answer

_CONTEXT = 3  # unchanged lines around a change, as diff -u shows them
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def render(account: accounts.Account, *, full: bool) -> Group:
    """One template, top to bottom; `full` shows the whole pod around its changes."""
    return Group(
        Text(output.visible(_title(account)), style="bold underline"),
        Text(output.visible(_headline(account)), style=_colour(account)),
        *([_difference(account, full=full), _reasons(account)] if account.operations else []),
        *_lines("warning", "yellow", account.warnings),
        *_lines("kept", "cyan", [f"{who}: {_listed(what)} (the pod's own)" for who, what in account.kept.items()]),
        *_lines("skipped", "dim", [f"{what}: {why}" for what, why in account.skipped.items()]),
        Text(),
    )


def summary(accounts_given: Sequence[accounts.Account]) -> Text:
    """The last line: how many of what."""
    refused = sum(map(accounts.refused, accounts_given))
    patched = sum(each.outcome == answer.PATCHED for each in accounts_given)
    parts = [f"{patched} injected", f"{refused} refused", f"{len(accounts_given) - patched - refused} unchanged"]
    noun = "template" if len(accounts_given) == 1 else "templates"
    return Text(f"{len(accounts_given)} {noun}: {', '.join(parts)}", style="bold red" if refused else "bold green")


def _title(account: accounts.Account) -> str:
    of = f", {account.template}" if account.template else ""
    if account.pods is None or account.object.startswith("Pod "):
        return f"{account.object}{of}"
    return f"{account.object}{of} ({account.pods} pod{'' if account.pods == 1 else 's'})"


def _headline(account: accounts.Account) -> str:
    if accounts.refused(account):
        return f"refused: {account.message}"
    if not account.fabric:
        return "unchanged: it did not opt in (no label railwright.io/fabric, or `none`)"
    rails = f", rails {_listed(account.rails)}" if account.rails else ""
    done = "injected" if account.operations else "unchanged, it has everything already"
    return f"{done}: fabric {account.fabric}, role {account.role}{rails}"


def _colour(account: accounts.Account) -> str:
    return "bold red" if accounts.refused(account) else "green" if account.operations else "default"


def _difference(account: accounts.Account, *, full: bool) -> Text:
    before, after = lines(_opened(account.before)), lines(_opened(account.after))
    context = max(len(before), len(after)) if full else _CONTEXT
    text = Text()
    for number, line in enumerate(difflib.unified_diff(before, after, n=context, lineterm="")):
        if number > 1:  # the first two would name files
            text.append(output.visible(line) + "\n", style=_STYLES.get(line[:1], "dim"))
    return text


def _opened(pod: accounts.Tree) -> accounts.Tree:
    """The pod with the record, one line of JSON on the wire, as the mapping it is."""
    annotations = dict(manifests.mapping(pod, "metadata", "annotations"))
    text = annotations.pop(names.INJECTION, None)
    if not text:
        return pod
    try:
        record = json.loads(text)
    except ValueError:  # a user's own, and about to be replaced
        return pod
    if not isinstance(record, dict):
        return pod
    inside = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in record.items()}
    opened = {**annotations, f"{names.INJECTION} (JSON)": inside}
    return {**pod, "metadata": {**pod["metadata"], "annotations": opened}}


def lines(tree: Any) -> list[str]:
    """A tree as lines of YAML: a file inside it as its lines, nothing folded."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=10**6).splitlines()


class _Dumper(yaml.SafeDumper):
    """Lines of a file as lines, no anchors, and everything that is not plain text escaped."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if value.endswith("\n") and all(line.isprintable() for line in value.splitlines()) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _reasons(account: accounts.Account) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("change", style="green", overflow="fold")
    table.add_column("why", overflow="fold")
    for each in account.changes:
        table.add_row(Text(output.visible(each.change)), Text(output.visible(each.reason)))
    return table


def _lines(word: str, style: str, sentences: Iterable[str]) -> Iterator[Text]:
    for sentence in sentences:
        yield Text(output.visible(f"{word}: {sentence}"), style=style)


def _listed(words: Iterable[str] | Mapping[str, str]) -> str:
    return ", ".join(words)
