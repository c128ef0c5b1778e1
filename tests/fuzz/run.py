"""Coverage-guided fuzzing by atheris (libFuzzer): `make fuzz FUZZ_ARGS="--seconds 60 networks policy"`.

Each target runs in a process of its own for its share of the time. What breaks one is kept below build/fuzz and makes
the exit code 1; `--minimize` writes what is new and worth keeping into the corpus instead.
"""

import argparse
import hashlib
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from types import FrameType, ModuleType

try:
    import atheris
except ModuleNotFoundError:  # it is an extension module with wheels for some systems and Pythons only
    sys.exit("atheris has no wheel for this system and Python; `pytest tests/fuzz`, the short run, needs none")

with atheris.instrument_imports(include=["fabric", "webhook", "cluster", "preflight"]):
    from fuzzing import catalogue, mutation

    TARGETS = catalogue.targets()

ROOT = pathlib.Path(__file__).parents[2]
CODE = tuple(
    f"{ROOT}/{package}/" for package in ("railwright/fabric", "webhook", "railwright/cluster", "railwright/preflight")
)
MAX_BYTES = 4096  # bytes of an input worth committing


def main() -> int:
    """Run the targets one after the other; 1 where one of them broke."""
    arguments = _parser().parse_args()
    if arguments.inside:
        return _inside(arguments)
    chosen = arguments.targets or list(TARGETS)
    broken = []
    for name in chosen:
        print(f"--- {name}", flush=True)
        if _apart(name, arguments.seconds / len(chosen), arguments.seed):
            broken.append(name)
        elif arguments.minimize:
            _minimize(name)
    print(f"{len(chosen) - len(broken)} passed, {len(broken)} failed")
    if broken:
        print(f"broken: {', '.join(broken)}; the inputs are below {catalogue.OUTPUT}", file=sys.stderr)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of what reads text of strangers.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: {' '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minimize", action="store_true", help="add to the corpus what covers more")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # the name of the target this process runs
    return parser


def _apart(name: str, seconds: float, seed: int) -> int:
    command = [sys.executable, __file__, "--inside", name, "--seconds", str(seconds), "--seed", str(seed)]
    return subprocess.run(command, check=False).returncode


def _inside(arguments: argparse.Namespace) -> int:
    """libFuzzer in this process; it ends the process itself."""
    target = TARGETS[arguments.inside]
    folder = catalogue.OUTPUT / arguments.inside
    grown = folder / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    seeds = pathlib.Path(tempfile.mkdtemp(prefix="seeds-", dir=folder))
    for number, data in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(data)
    committed = catalogue.CORPUS / arguments.inside
    committed.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_len={mutation.MAX_LENGTH}",
        f"-seed={arguments.seed}",
        "-timeout=10",
        f"-artifact_prefix={folder}/",
    ]
    seconds = max(1, round(arguments.seconds))
    options += [f"-max_total_time={seconds}", "-print_final_stats=1", str(grown), str(committed), str(seeds)]
    corpus = catalogue.corpus(arguments.inside)

    def mutator(data: bytes, size: int, seed: int) -> bytes:
        """Return half of libFuzzer's own mutations, half of ours, which know JSON and the words of the format."""
        chance = random.Random(seed)  # noqa: S311 - libFuzzer's own seed, so that a run can be repeated
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, len(data)))[:size]
        return mutation.mutate(data, corpus, target.TOKENS, chance)[:size]

    atheris.Setup([sys.argv[0], *options], lambda data: catalogue.run(target, data), custom_mutator=mutator)
    atheris.Fuzz()
    return 0


def _minimize(name: str) -> None:
    """Add the inputs that cover more code than those before them to the corpus, the smallest first."""
    target = TARGETS[name]
    taken = set().union(*(_ways(target, data) for data in catalogue.corpus(name)))
    grown = (path.read_bytes() for path in (catalogue.OUTPUT / name / "corpus").iterdir())
    for data in sorted(grown, key=lambda content: (len(content), content)):
        new = _ways(target, data) - taken if len(data) <= MAX_BYTES else set()
        if new:
            taken |= new
            (catalogue.CORPUS / name).mkdir(parents=True, exist_ok=True)
            (catalogue.CORPUS / name / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def _ways(target: ModuleType, data: bytes) -> set[tuple[str, int, int]]:
    """Return the steps from line to line that an input takes in the code under test."""
    taken: set[tuple[str, int, int]] = set()

    def trace_call(frame: FrameType, *_: object) -> Callable | None:
        path, last = frame.f_code.co_filename, 0
        if not path.startswith(CODE):
            return None

        def trace_step(inner: FrameType, event: str, _: object) -> Callable:
            nonlocal last
            if event == "line":
                taken.add((path, last, inner.f_lineno))
                last = inner.f_lineno
            return trace_step

        return trace_step

    sys.settrace(trace_call)
    try:
        target.check(data)
    finally:
        sys.settrace(None)
    return taken


if __name__ == "__main__":
    sys.exit(main())
