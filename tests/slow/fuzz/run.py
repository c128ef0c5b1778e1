"""Coverage-guided fuzzing by atheris (libFuzzer): `tests/slow/fuzz/run.py --seconds 60 networks policy`.

Each target runs in a process of its own for its share of the time. Inputs with findings are stored below build/fuzz,
with exit code 1.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import atheris
except ModuleNotFoundError:  # it is an extension module with wheels for some systems and Pythons only
    sys.exit("atheris has no wheel for this system and Python; `pytest tests/slow/fuzz`, the short run, needs none")

with atheris.instrument_imports(include=["railwright.fabric", "webhook", "railwright.cluster", "railwright.preflight"]):
    from fuzzing import catalogue, mutation

    TARGETS = catalogue.load_targets()


def main() -> int:
    """Run the targets one after the other. Return 1 if one has a finding."""
    arguments = _parser().parse_args()
    if arguments.inside:
        return _inside(arguments)
    chosen = arguments.targets or list(TARGETS)
    broken = []
    for name in chosen:
        print(f"--- {name}", flush=True)
        if _apart(name, "--seconds", str(arguments.seconds / len(chosen)), "--seed", str(arguments.seed)):
            broken.append(name)
    print(f"{len(chosen) - len(broken)} passed, {len(broken)} failed")
    if broken:
        print(f"broken: {', '.join(broken)}; the inputs are below {catalogue.OUTPUT}", file=sys.stderr)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of what reads text of strangers.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: {' '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=240, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # the name of the target this process runs
    return parser


def _apart(name: str, *options: str) -> int:
    return subprocess.run([sys.executable, __file__, "--inside", name, *options], check=False).returncode


def _inside(arguments: argparse.Namespace) -> int:
    """Run libFuzzer in this process, which it ends."""
    target = TARGETS[arguments.inside]
    folder = catalogue.OUTPUT / arguments.inside
    grown = folder / "corpus"
    grown.mkdir(parents=True, exist_ok=True)
    seeds = pathlib.Path(tempfile.mkdtemp(prefix="seeds-", dir=folder))
    corpus = catalogue.read_corpus(arguments.inside)
    for number, data in enumerate(corpus):
        (seeds / str(number)).write_bytes(data)
    options = [
        *(f"-max_len={mutation.MAX_LENGTH}", f"-seed={arguments.seed}", "-timeout=10", f"-artifact_prefix={folder}/"),
        *(f"-max_total_time={max(1, round(arguments.seconds))}", "-print_final_stats=1", str(grown), str(seeds)),
    ]

    def mutator(data: bytes, size: int, seed: int) -> bytes:
        """Return half of libFuzzer's own mutations, half of ours, which know JSON and the words of the format."""
        chance = random.Random(seed)  # noqa: S311 - libFuzzer's own seed, so that a run can be repeated
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, len(data)))[:size]
        return mutation.mutate(data, corpus, target.TOKENS, chance)[:size]

    atheris.Setup([__file__, *options], lambda data: catalogue.run_input(target, data), custom_mutator=mutator)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
