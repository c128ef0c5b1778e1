"""Completes a command line, for every shell and for kubectl.

Completions come from the argument parsers. Reads no cluster and no file, so that TAB is answered at once. Where an
argument is a file, the shell completes its name. Prints the scripts that connect TAB of a shell to it.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from railwright.cli import output, parsers

_FILES = ("FILE", "DIR")  # metavars of arguments that are paths


class Completions(NamedTuple):
    """Candidates for the last word, each with its help. `files`: names of files are valid too."""

    candidates: Sequence[tuple[str, str]]
    files: bool = False


def complete(root: parsers.Parser, words: Sequence[str]) -> int:
    """Print the completions of the last word."""
    print("\n".join(format_lines(find(root, words))))
    return output.OK


def find(root: parsers.Parser, words: Sequence[str]) -> Completions:
    """Return the completions of the last of `words`, which may be empty. The program's name is not one of the words."""
    *before, last = _join_options(words) or [""]
    parser, open_option = _walk(root, before)
    if open_option is not None:
        return _find_values(open_option, last)
    options = {name: argument for argument in parser.arguments for name in argument.option_strings}
    if last.startswith("--") and "=" in last:
        name, _, value = last.partition("=")
        option = options.get(name)
        return Completions(()) if option is None else _find_values(option, value)
    if last.startswith("-"):
        helps = {name: option.help or "" for name, option in sorted(options.items()) if name.startswith(last)}
        return Completions([(name, _shorten(text)) for name, text in helps.items() if text != argparse.SUPPRESS])
    return _find_words(parser, last)


def format_lines(completions: Completions) -> Iterator[str]:
    """Yield the lines that kubectl expects of plugins (cobra's format): candidates, then a directive about files."""
    for value, text in completions.candidates:
        yield f"{value}\t{text}" if text else value
    yield ":0" if completions.files else ":4"


def _join_options(words: Sequence[str]) -> list[str]:
    """Join `--option`, `=` and `value` again, which bash splits at the sign."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _walk(root: parsers.Parser, words: Sequence[str]) -> tuple[parsers.Parser, argparse.Action | None]:
    """Return the parser of the command that the words name, and the option whose value comes next."""
    parser, open_option = root, None
    for word in words:
        if open_option is not None:
            open_option = None
        elif word.startswith("-"):
            option = next((argument for argument in parser.arguments if word in argument.option_strings), None)
            open_option = option if option is not None and option.nargs != 0 else None
        else:
            parser = parser.children.get(word, parser)
    return parser, open_option


def _find_words(parser: parsers.Parser, last: str) -> Completions:
    """Return subcommands, or the values of positional arguments."""
    if parser.children:
        names = [name for name in parser.children if name.startswith(last)]
        return Completions([(name, _shorten(parser.children[name].command.summary)) for name in names])
    values = [_find_values(argument, last) for argument in parser.arguments if not argument.option_strings]
    candidates = [candidate for value in values for candidate in value.candidates]
    return Completions(candidates, files=any(value.files for value in values))


def _find_values(argument: argparse.Action, last: str) -> Completions:
    if argument.choices is not None:
        return Completions([(str(value), "") for value in argument.choices if str(value).startswith(last)])
    return Completions((), files=argument.metavar in _FILES)


def _shorten(text: str) -> str:
    """Return the first clause of a help text, because shells show one line."""
    return text.partition(";")[0].partition(" (default")[0].replace("\t", " ").replace("%%", "%")


_BASH = """\
# bash completion of railwright: source <(railwright completion bash)
_railwright() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :0) compopt -o default 2>/dev/null ;;
            :*) ;;
            *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _railwright railwright kubectl-railwright
"""
_ZSH = """\
#compdef railwright kubectl-railwright
# zsh completion of railwright: source <(railwright completion zsh), or this file as _railwright in $fpath
_railwright() {
    local line value
    local -a found
    while IFS= read -r line; do
        case "$line" in
            :0) _files ;;
            :*) ;;
            *) value="${line%%$'\\t'*}"
               if [[ "$line" == *$'\\t'* ]]; then found+=("${value//:/\\\\:}:${line#*$'\\t'}")
               else found+=("${value//:/\\\\:}"); fi ;;
        esac
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#found} )) && _describe 'railwright' found
}
compdef _railwright railwright kubectl-railwright
"""
_FISH = """\
# fish completion of railwright: railwright completion fish | source
function __railwright_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        switch $line
            case ':0'
                __fish_complete_path (commandline -ct)
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c railwright -f -a '(__railwright_complete)'
complete -c kubectl-railwright -f -a '(__railwright_complete)'
"""
SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def print_script(arguments: argparse.Namespace) -> int:
    """Print the script of a shell and return 0."""
    sys.stdout.write(SCRIPTS[arguments.shell])
    return output.OK
