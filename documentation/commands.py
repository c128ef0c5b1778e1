"""Formats the page of each command: usage, options, exit codes and examples, from the parsers of the command line."""

import argparse

from railwright.cli import dispatch, parsers

_ANYTHING_ELSE = "options"


def describe(name: str) -> str:
    """Return the description of a command and its subcommands, in Markdown."""
    command = dispatch.build_parser([name]).children[name]
    if not command.children:
        return _describe_leaf(command)
    parts = [command.description]
    for child in command.get_leaves():
        parts += [f"## {child.name}", _describe_leaf(child)]
    return "\n\n".join(parts)


def list_commands() -> str:
    """Return the table of all commands by purpose, in Markdown."""
    root = dispatch.build_parser()
    rows = ["| command | does | exits with 1 if |", "|---|---|---|"]
    for title, names in dispatch.GROUPS.items():
        rows.append(f"| **{title}** | | |")
        rows += [_format_row(name, root.children[name], root.summaries[name]) for name in names]
    return "\n".join(rows)


def _format_row(name: str, command: parsers.Parser, summary: str) -> str:
    page = _PAGES.get(name, f"commands/{name}.md")
    findings = list(dict.fromkeys(leaf.finding for leaf in command.get_leaves() if leaf.finding))
    return f"| [`{name}`]({page}) | {_escape(summary)} | {'; '.join(findings)} |"


# programs of the cluster, whose options are on other pages
_PAGES = {
    "webhook": "interface.md#6-commands",
    "extender": "interface.md#6-commands",
    "preflight": "preflight.md",
}


def _describe_leaf(command: parsers.Parser) -> str:
    parts = [command.description, f"```text\n{_format_usage(command)}\n```"]
    for title, arguments in command.groups.items():
        parts += [f"**{(title or _ANYTHING_ELSE).capitalize()}**", _format_options(arguments)]
    codes = [f"| {code} | {meaning} |" for code, meaning in command.list_exit_codes()]
    parts += ["**Exit codes**", "\n".join(["| code | meaning |", "|---|---|", *codes])]
    parts += ["**Examples**", "\n".join(["```console", *(f"$ {line}" for line in command.examples), "```"])]
    return "\n\n".join(parts)


def _format_usage(command: parsers.Parser) -> str:
    words = [command.name]
    for argument in command.arguments:
        if not argument.option_strings:
            name = argument.metavar or _join_choices(argument)
            words.append({"*": f"[{name}...]", "?": f"[{name}]"}.get(str(argument.nargs), str(name)))
    return " ".join([*words, "[options]"])


def _format_options(arguments: list[argparse.Action]) -> str:
    rows = ["| option | meaning |", "|---|---|"]
    ordered = sorted(arguments, key=lambda argument: bool(argument.option_strings))  # FILE before options
    rows += [f"| {_format_names(argument)} | {_escape(_expand_help(argument))} |" for argument in ordered]
    return "\n".join(rows)


def _format_names(argument: argparse.Action) -> str:
    if not argument.option_strings:
        return f"`{argument.metavar or _join_choices(argument)}`"
    value = "" if argument.nargs == 0 else f" {argument.metavar or _join_choices(argument) or argument.dest.upper()}"
    value = f" [{value.strip()}]" if argument.nargs == "?" else value
    *short, long = argument.option_strings
    return ", ".join([*(f"`{name}`" for name in short), f"`{_escape(long + value)}`"])


def _join_choices(argument: argparse.Action) -> str:
    return "|".join(map(str, argument.choices or ()))


def _expand_help(argument: argparse.Action) -> str:
    """Return the help text with its default, as argparse would fill it in."""
    return (argument.help or "").replace("%%", "%").replace("%(default)s", str(argument.default))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
