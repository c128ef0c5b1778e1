"""Reads from command lines the variables that mpirun passes to its ranks, and those that a shell script exports.

Reads `command` and `args`, scripts after `bash -c`, and the options of mpirun. Skips parts that it cannot read, and
executes nothing. A value that a shell would compute is unknown.
"""

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from railwright.fabric.lint import rule_types

# Prefixes of variables that a rule checks, or that only a container with ranks sets
RELEVANT = (
    *("NCCL_", "nccl_", "GLOO_", "TP_SOCKET_", "TORCH_NCCL_", "UCX_", "VLLM_NIXL_", "NIXL_", "NVSHMEM_"),
    *("RDMAV_", "FI_"),
)
_NCCL = RELEVANT[0]
# Every command line that sets a linted variable or starts ranks contains one of these.
HINTS = (*RELEVANT, "mpirun", "mpiexec", "prterun", "_perf")
_LAUNCHERS = frozenset({"mpirun", "mpiexec", "prterun", "orterun", "mpirun.mpich", "mpirun.openmpi"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_SEPARATORS = frozenset(";&|()")
_EXPORTS = frozenset({"export", "declare", "typeset", "env", "set"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# A variable that a shell expands, or that a program in the script looks up
_READ = re.compile(
    r"(?:(?P<assigned>\bNCCL_\w+)=[\"']?)?(?:\$\{?|(?:getenv|environ(?:\.get)?)[\[(]\s*[\"'])(?P<name>NCCL_\w+)",
    re.ASCII,
)
# Programs of NVIDIA/nccl-tests
_BENCHMARK = re.compile(
    r"\b(?:(?:all_)?gather|(?:all_)?reduce|alltoallv?|broadcast|hypercube|reduce_scatter|scatter|sendrecv)_perf\b"
)
_PLACE = "command"  # place of a setting in findings
_MAX_DEPTH = 4  # scripts inside scripts
_MAX_LINE = 1 << 14  # characters of a line of a script: shlex takes quadratic time for a long word
MAX_LENGTH = 1 << 20  # characters of a whole command line: the API server stores no more of a pod


class CommandSettings(msgspec.Struct, frozen=True):
    """Variables that a command line sets.

    `exported` are set in the processes that the script starts, `passed` in the ranks that mpirun starts.
    """

    exported: tuple[rule_types.Setting, ...] = ()
    passed: tuple[rule_types.Setting, ...] = ()
    launches: bool = False  # True if it runs mpirun
    is_benchmark: bool = False  # True if it runs a program of nccl-tests


def list_read_variables(words: Sequence[str]) -> frozenset[str]:
    """Return the NCCL_ variables whose value a script on the command line uses. `NAME=$NAME` does not count."""
    return frozenset(
        match["name"]
        for word in words
        if len(word) <= MAX_LENGTH and _NCCL in word
        for match in _READ.finditer(word)
        if match["assigned"] != match["name"]
    )


def is_linted_variable(name: str) -> bool:
    """True if lint checks variables of this name, by its prefix."""
    return name.startswith(RELEVANT)


def may_contain_settings(words: Sequence[str]) -> bool:
    """True if the words contain a linted variable's prefix, mpirun or a benchmark's name: only then are they read."""
    return any(map("".join(words).__contains__, HINTS))


def read_settings(words: Sequence[str], max_length: int = MAX_LENGTH) -> CommandSettings:
    """Return the variables that a command line sets; none if it has more than `max_length` characters. Never raises."""
    if sum(map(len, words)) > max_length or not may_contain_settings(words):
        return CommandSettings()
    parser = _Parser()
    parser.parse_command(list(words), 0)
    is_benchmark = _BENCHMARK.search(" ".join(words)) is not None
    return CommandSettings(tuple(parser.exported), tuple(parser.passed), parser.launches, is_benchmark)


class _Parser:
    """Collects the variables that one command line sets."""

    def __init__(self) -> None:
        self.exported: list[rule_types.Setting] = []
        self.passed: list[rule_types.Setting] = []
        self.launches = False

    def parse_command(self, words: list[str], depth: int) -> None:
        """Parse one command of a script: assignments, a shell with its script, or mpirun with its options."""
        if depth > _MAX_DEPTH:
            return
        launcher = next((index for index, word in enumerate(words) if _get_program(word) in _LAUNCHERS), None)
        self._parse_assignments(words[:launcher])
        for index, word in enumerate(words[:-1]):
            if _get_program(word) in _SHELLS:
                before = len(self.exported)
                self._parse_shell(words[index + 1 :], depth)
                if launcher is not None and index > launcher:  # every rank runs this script
                    self.passed += self.exported[before:]
                    del self.exported[before:]
                break
        if launcher is not None:
            self.launches = True
            self._parse_options(words[launcher + 1 :])

    def _parse_shell(self, options: list[str], depth: int) -> None:
        for option, script in itertools.pairwise(options):
            if option.startswith("-") and option.endswith("c") and not option.startswith("--"):
                for command in _split_commands(script):
                    self.parse_command(command, depth + 1)
                return
            if not option.startswith(("-", "+")):
                return  # a script file and its arguments follow

    def _parse_assignments(self, words: list[str]) -> None:
        """Parse NAME=VALUE before a command, and after `env`, `export`, `declare`, `typeset` or `set`."""
        where = _PLACE
        for word in words:
            match = _ASSIGNMENT.fullmatch(word)
            if match is not None and is_linted_variable(match[1]):
                self.exported.append(rule_types.Setting(match[1], _get_literal(match[2]), where))
            elif _get_program(word) in _EXPORTS:
                where = f"{_PLACE}: {word}"
            elif match is None and not word.startswith("-") and where == _PLACE:
                return  # the command itself; its arguments follow

    def _parse_options(self, words: list[str]) -> None:
        for option, word in itertools.pairwise(words):
            if option == "-x":
                match = _ASSIGNMENT.fullmatch(word)  # or one name, or several as older releases accept them
                names = [match[1]] if match else [name for name in word.split(",") if _NAME.fullmatch(name)]
                value = _get_literal(match[2]) if match else None
                where = f"{_PLACE}: {option}"
                self.passed += [rule_types.Setting(name, value, where) for name in names if is_linted_variable(name)]


def _get_program(word: str) -> str:
    return word.rpartition("/")[2]


def _get_literal(value: str) -> str | None:
    """Return the value; None if a shell or kubelet would expand it."""
    return None if "$" in value or "`" in value else value


def _split_commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each command of a script. Skip lines that cannot set a linted variable."""
    for line in script.replace("\\\n", " ").split("\n"):
        command: list[str] = []
        for token in (*_tokenize(line), ";") if may_contain_settings([line]) else ():
            if set(token) <= _SEPARATORS:
                yield command
                command = []
            else:
                command.append(token)


def _tokenize(line: str) -> list[str]:
    """Return the words in the first `_MAX_LINE` characters of a line."""
    lexer = shlex.shlex(line[:_MAX_LINE], posix=True, punctuation_chars="".join(sorted(_SEPARATORS)))
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation that continues on the next line
        return line.replace('"', " ").replace("'", " ").split()
