"""The targets by name, their stored inputs, and the run of one input."""

import hashlib
import importlib
import json
import math
import pathlib
import pkgutil
import time
from types import ModuleType
from typing import Any

import fuzzing

CORPUS = pathlib.Path(__file__).parents[1] / "corpus.json"  # target -> stored inputs; each character is a byte
OUTPUT = pathlib.Path(__file__).parents[4] / "build" / "fuzz"  # where an input goes that breaks something
MAX_SECONDS = 1.0  # of CPU time for one input: a loaded machine is no defect of the code


def load_targets() -> dict[str, ModuleType]:
    """Return every module of this package that has a `check`."""
    names = [module.name for module in pkgutil.iter_modules(fuzzing.__path__)]
    modules = {name: importlib.import_module(f"fuzzing.{name}") for name in names if name != "catalogue"}
    return {name: module for name, module in modules.items() if hasattr(module, "check")}


def read_corpus(name: str) -> list[bytes]:
    """Return the seeds of a target from the test data and its stored inputs, in a fixed order."""
    stored = json.loads(CORPUS.read_text()).get(name, ())
    return [*load_targets()[name].seeds(), *(text.encode("latin-1") for text in stored)]


def run_input(target: ModuleType, data: bytes) -> None:
    """Check one input. Raises the errors of `check`, and AssertionError if it takes too long."""
    begun = time.process_time()
    target.check(data)
    took = time.process_time() - begun
    assert took < MAX_SECONDS, f"{took:.1f} s for {len(data)} bytes"


def store_input(name: str, data: bytes) -> pathlib.Path:
    """Write an input that caused a finding to a file, and return the file."""
    path = OUTPUT / name / f"crash-{hashlib.sha256(data).hexdigest()[:16]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def parse_strictly(data: bytes) -> Any:
    """Return a review decoded by a strict parser, to apply a patch; None if a part that ours skips is invalid.

    The API server sends no such body.
    """
    try:
        return json.loads(data, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    """Reject 1e999, which Python reads as infinity and writes as invalid JSON."""
    value = float(text)
    return value if math.isfinite(value) else 1e308
