"""Runs `railwright preflight` on a file tree of a container and reads the files that it writes."""

import contextlib
import io
import json
import pathlib
from typing import NamedTuple

from railwright.preflight import __main__ as preflight


class Result(NamedTuple):
    """Exit code, the line without its prefix, the texts that were written, and rails.json parsed."""

    code: int
    line: str
    files: dict[str, str]
    found: dict


def run(root: pathlib.Path, *options: str, environment: dict | None = None) -> Result:
    """Run the command on the tree below `root`."""
    folder, printed, errors = root / "run", io.StringIO(), io.StringIO()
    folder.mkdir(exist_ok=True)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        code = preflight.main([f"--root={root}", "--write", str(folder), *options], environment or {})
    found, line = sorted((printed.getvalue() + errors.getvalue()).splitlines(), key=lambda line: line[0] != "{")
    short = line.removeprefix("railwright preflight ")
    assert bool(errors.getvalue()) == short.startswith(("failed:", "warning:"))
    assert (root / "dev/termination-log").read_text().splitlines() == [line]
    assert len(line) <= 1030
    assert f"{found}\n" == (folder / "rails.json").read_text()
    files = {path.name: path.read_text() for path in sorted(folder.iterdir())}
    assert list(files) == ["nccl.conf", "rails.env", "rails.json", "ucx.conf"]
    return Result(code, short, files, json.loads(files.pop("rails.json")))


def build_rail_options(count: int, form: str = "rail{0},interface=net{1}") -> list[str]:
    """Return the options of rails on net1, ..."""
    return [f"--rail={form.format(rail, rail + 1)}" for rail in range(count)]


def read_env(result: Result) -> dict[str, str]:
    """Return the variables of rails.env as kubelet reads them (kubernetes/kubernetes pkg/kubelet/util/env)."""
    variables = {}
    for line in result.files["rails.env"].splitlines():
        name, mark, value = line.partition("=")
        assert mark, line
        assert name.strip() == name, line
        assert len(value) > 2, line
        assert (value[0], value[-1], value.count("'")) == ("'", "'", 2), line
        variables[name] = value[1:-1]
    return variables


def read_conf(text: str) -> dict[str, str]:
    """Return the variables of nccl.conf or ucx.conf."""
    return dict(line.split("=", 1) for line in text.splitlines())
