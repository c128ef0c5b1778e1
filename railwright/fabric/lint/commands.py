"""Settings on command lines: what mpirun passes to its ranks, and what a shell script exports.

Owns the reading of `command` and `args`, of scripts behind `bash -c`, and of mpirun's options. Tolerant: what cannot be
read is skipped, nothing is executed, and a value that a shell would compute is not known. Refuses to know pods.
"""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.fabric.lint import model

# What some rule or the catalogue looks at; an entrypoint's other variables are none of our business.
RELEVANT = (
    "NCCL_",
    "nccl_",
    "GLOO_",
    "TP_",
    "TORCH_NCCL_",
    "UCX_",
    "NVSHMEM_",
    "OMPI_MCA_",
    "PRTE_MCA_",
    "PMIX_MCA_",
    "RDMAV_",
    "FI_",
)
_HINTS = (*RELEVANT, "mpirun", "mpiexec", "prterun", "mca")
_LAUNCHERS = frozenset({"mpirun", "mpiexec", "prterun", "orterun", "mpirun.mpich", "mpirun.openmpi"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_SEPARATORS = frozenset(";&|()")
_EXPORTS = frozenset({"export", "declare", "typeset", "env", "set"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# --mca becomes the variable that Open MPI itself would set for it (Open MPI documentation, setting MCA parameters)
_MCA: Mapping[str, str] = {
    "mca": "OMPI_MCA_",
    "gmca": "OMPI_MCA_",
    "omca": "OMPI_MCA_",
    "gomca": "OMPI_MCA_",
    "prtemca": "PRTE_MCA_",
    "gprtemca": "PRTE_MCA_",
    "pmixmca": "PMIX_MCA_",
    "gpmixmca": "PMIX_MCA_",
}
_WHERE = "command"  # how findings name the place
_DEEPEST = 4  # scripts inside scripts
LONGEST = 1 << 20  # characters of a whole command line: the API server stores no more of a pod


class Commands(msgspec.Struct, frozen=True):
    """`exported`: of the processes the script starts. `passed`: what mpirun gives its ranks, wherever they run."""

    exported: tuple[model.Setting, ...] = ()
    passed: tuple[model.Setting, ...] = ()
    launches: bool = False  # there is an mpirun at all


_NOTHING = Commands()


def relevant(name: str) -> bool:
    """True for a variable that lint looks at."""
    return name.startswith(RELEVANT)


def read(words: Sequence[str], longest: int = LONGEST) -> Commands:
    """The settings in a container's command line; none in one of more than `longest` characters. Never raises."""
    if sum(map(len, words)) > longest or not any(hint in word for word in words for hint in _HINTS):
        return _NOTHING
    reading = _Reading()
    reading.words(list(words), 0)
    return Commands(tuple(reading.exported), tuple(reading.passed), reading.launches)


class _Reading:
    """One walk over a command line; collects what it finds."""

    def __init__(self) -> None:
        self.exported: list[model.Setting] = []
        self.passed: list[model.Setting] = []
        self.launches = False

    def words(self, words: list[str], depth: int) -> None:
        """One simple command."""
        if depth > _DEEPEST:
            return
        launcher = next((at for at, word in enumerate(words) if _program(word) in _LAUNCHERS), None)
        self._assignments(words[:launcher])
        for at, word in enumerate(words[:-1]):
            if _program(word) in _SHELLS:
                before = len(self.exported)
                self._shell(words[at + 1 :], depth)
                if launcher is not None and at > launcher:  # every rank runs this script
                    self.passed += self.exported[before:]
                    del self.exported[before:]
                break
        if launcher is not None:
            self.launches = True
            self._options(words[launcher + 1 :])

    def _shell(self, options: list[str], depth: int) -> None:
        for option, script in itertools.pairwise(options):
            if option.startswith("-") and option.endswith("c") and not option.startswith("--"):
                for command in _simple_commands(script):
                    self.words(command, depth + 1)
                return
            if not option.startswith(("-", "+")):
                return  # a script's file, then its arguments

    def _assignments(self, words: list[str]) -> None:
        """NAME=VALUE in front of a command, behind env, or exported."""
        how = _WHERE
        for word in words:
            found = _ASSIGNMENT.fullmatch(word)
            if found is not None and relevant(found[1]):
                self.exported.append(model.Setting(found[1], _known(found[2]), how))
            elif _program(word) in _EXPORTS:
                how = f"{_WHERE}: {word}"
            elif found is None and not word.startswith("-") and how == _WHERE:
                return  # the command itself: what follows are its arguments

    def _options(self, words: list[str]) -> None:
        for at, word in enumerate(words):
            following = words[at + 1 : at + 3]
            if word == "-x" and following:
                self._exports(following[0], word)
            elif word.startswith("-") and len(following) == 2 and (prefix := _MCA.get(word.lstrip("-"))):
                setting = model.Setting(
                    f"{prefix}{following[0]}", _known(following[1]), f"{_WHERE}: {word}", model.Origin.MPIRUN
                )
                self.passed.append(setting)

    def _exports(self, text: str, option: str) -> None:
        """-x NAME=VALUE or -x NAME; several in one, separated by commas, as older releases take them without values."""
        found = _ASSIGNMENT.fullmatch(text)
        pairs = [(found[1], _known(found[2]))] if found else [(name, None) for name in text.split(",")]
        for name, value in pairs:
            if _NAME.fullmatch(name) and relevant(name):
                self.passed.append(model.Setting(name, value, f"{_WHERE}: {option}", model.Origin.MPIRUN))


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _known(value: str) -> str | None:
    """None where a shell or the kubelet would put something in."""
    return None if "$" in value or "`" in value else value


def _simple_commands(script: str) -> Iterator[list[str]]:
    """The commands of a script, each as its words; lines without anything for us are not read."""
    for line in script.replace("\\\n", " ").split("\n"):
        if any(hint in line for hint in _HINTS):
            yield from _parted(_tokens(line))


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="".join(sorted(_SEPARATORS)))
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation that goes on in the next line
        return line.replace('"', " ").replace("'", " ").split()


def _parted(tokens: Sequence[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for token in tokens:
        if set(token) <= _SEPARATORS:
            yield command
            command = []
        else:
            command.append(token)
    yield command
