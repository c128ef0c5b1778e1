"""Builds an image from a Containerfile without a registry and without a daemon: each instruction makes a layer.

It knows only the instructions of our Containerfile; any other is an error, so that none is ignored. Layers are folders
in the cache, keyed by their inputs; RUN takes place in an overlay of the layers below. RUN has the machine's network
and pip's own settings, as with `podman build`.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from plane import binaries

_RUN = """
mkdir -p "$SCRATCH/work" "$SCRATCH/root"
mount -t overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$SCRATCH/work" overlay "$SCRATCH/root"
cd "$SCRATCH/root"
mount -t proc proc proc
mount --rbind /dev dev
touch etc/resolv.conf etc/hosts
for file in resolv.conf hosts; do mount --bind "/etc/$file" "etc/$file"; done
exec chroot . /bin/env -i "$@"
"""
_COPY = 'mount -t overlay -o "lowerdir=$LOWER" overlay "$SCRATCH" && cp -a "$SCRATCH$1" "$UPPER$2"'
_UNSHARED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec")


@dataclasses.dataclass
class Stage:
    """A stage of the Containerfile during its build: its layers, lowest first, and the image's configuration."""

    layers: list[pathlib.Path]
    folder: str = "/"
    arguments: dict[str, str] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    config: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def lower(self) -> str:
        """The layers in the order of overlayfs: highest first."""
        return ":".join(str(layer) for layer in reversed(self.layers))


def find_base(text: str) -> str:
    """Return the base image of the last stage."""
    return re.findall(r"^FROM (\S+)", text, re.MULTILINE)[-1]


class Builder:
    """Builds one Containerfile with the files of `context`; `base` is the layer of every FROM."""

    def __init__(self, context: pathlib.Path, base: pathlib.Path, layers: pathlib.Path) -> None:
        self._context = context
        self._base = base
        self._layers = layers
        self._stages: dict[str, Stage] = {}
        self._stage = Stage([base])

    def build(self, text: str) -> Stage:
        """Carry out all instructions and return the last stage."""
        lines = re.sub(r"\\\n", " ", text).splitlines()
        for line in lines:
            instruction, _, value = line.strip().partition(" ")
            if not instruction or instruction.startswith("#"):
                continue
            action = getattr(self, f"_do_{instruction.lower()}", None)
            if action is None:
                raise ValueError(f"Containerfile: tests/e2e/realnode/containerfile.py does not know {instruction}")
            action(value.strip())
        return self._stage

    def _do_from(self, value: str) -> None:
        self._stage = Stage(
            [self._base], environment={"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/bin"}
        )
        if match := re.fullmatch(r"\S+ AS (\w+)", value):
            self._stages[match[1]] = self._stage

    def _do_workdir(self, value: str) -> None:
        self._stage.folder = value

    def _do_arg(self, value: str) -> None:
        name, _, default = value.partition("=")
        self._stage.arguments[name] = default

    def _do_env(self, value: str) -> None:
        for setting in shlex.split(value):
            name, _, text = setting.partition("=")
            self._stage.environment[name] = text.replace("$PATH", self._stage.environment["PATH"])

    def _do_user(self, value: str) -> None:
        self._stage.config["User"] = value

    def _do_entrypoint(self, value: str) -> None:
        self._stage.config["Entrypoint"] = json.loads(value)

    def _do_cmd(self, value: str) -> None:
        self._stage.config["Cmd"] = json.loads(value)

    def _do_copy(self, value: str) -> None:
        options = [part for part in value.split() if part.startswith("--")]
        *sources, target = [part for part in value.split() if not part.startswith("--")]
        place = os.path.join(self._stage.folder, target)  # noqa: PTH118 - a path of the image
        if options:
            (name,) = re.findall(r"--from=(\w+)", options[0])
            self._copy_from(self._stages[name], sources[0], place)
        else:
            self._copy_context(sources, place, into=target.endswith("/"))

    def _copy_context(self, sources: Sequence[str], place: str, *, into: bool) -> None:
        paths = [self._context / source for source in sources]
        upper = self._begin("COPY", place, *(_digest(path) for path in paths))
        if upper is None:
            return
        for path in paths:
            output = upper / place.lstrip("/") / (path.name if into and path.is_file() else "")
            output.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, output, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, output)
        self._finish(upper)

    def _copy_from(self, stage: Stage, source: str, place: str) -> None:
        upper = self._begin("COPY", stage.lower, source, place)
        if upper is None:
            return
        (upper / place.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        self._unshare(_COPY, {"LOWER": stage.lower, "UPPER": str(upper)}, source, place)
        self._finish(upper)

    def _do_run(self, value: str) -> None:
        stage = self._stage
        settings = {**stage.environment, **stage.arguments}
        upper = self._begin("RUN", value, repr(sorted(settings.items())))
        if upper is None:
            return
        pip = {name: text for name, text in os.environ.items() if name.startswith("PIP_") and name != "PIP_FIND_LINKS"}
        given = [f"{name}={text}" for name, text in {**pip, "HOME": "/root", **settings}.items()]
        command = ["sh", "-ec", f"mkdir -p {stage.folder}; cd {stage.folder}; {value}"]
        self._unshare(_RUN, {"LOWER": stage.lower, "UPPER": str(upper)}, *given, *command)
        self._finish(upper)

    def _begin(self, *parts: str) -> pathlib.Path | None:
        """Return an empty folder for the next layer, or None if the layer is there."""
        key = hashlib.sha256("\0".join([self._stage.lower, *parts]).encode()).hexdigest()[:24]
        layer = self._layers / key
        self._stage.layers.append(layer)
        if layer.exists():
            os.utime(layer)
            return None
        upper = self._layers / f".{key}"
        shutil.rmtree(upper, ignore_errors=True)
        upper.mkdir(parents=True)
        self._stage.layers.pop()
        return upper

    def _finish(self, upper: pathlib.Path) -> None:
        layer = upper.with_name(upper.name.removeprefix("."))
        upper.rename(layer)
        self._stage.layers.append(layer)

    def _unshare(self, script: str, variables: Mapping[str, str], *arguments: str) -> None:
        scratch = self._layers / ".scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        environment = {**os.environ, **variables, "SCRATCH": str(scratch)}
        done = subprocess.run(
            [*_UNSHARED, script, "sh", *arguments], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            binaries.tell(done.stderr + done.stdout)
            raise subprocess.CalledProcessError(done.returncode, arguments)


def _digest(path: pathlib.Path) -> str:
    """Return a digest of the names and contents of a file or folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(path.parent)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
