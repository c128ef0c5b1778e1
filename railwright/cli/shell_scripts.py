"""Prints the scripts that connect TAB of a shell to `railwright __complete`."""

import argparse
import sys
from collections.abc import Mapping

from railwright.cli import formats, output

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
    script = SCRIPTS[arguments.shell]
    if arguments.output == "json":
        formats.print_json({"shell": arguments.shell, "script": script})
    else:
        sys.stdout.write(script)
    return output.OK
