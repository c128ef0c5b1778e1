"""Container images without a registry: a folder or a few files become a docker-archive that containerd imports."""

import contextlib
import dataclasses
import hashlib
import io
import json
import pathlib
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from realnode import services

BUSYBOX = "localhost/busybox:1"
ALPINE = "docker.io/library/alpine:3.10"  # of training-operator's init container
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass(frozen=True)
class Image:
    """An image in a docker-archive."""

    name: str
    archive: pathlib.Path


def make_busybox(busybox: pathlib.Path, archive: pathlib.Path) -> Image:
    """Make an image with a shell, `ip` and `ping`, of two megabytes."""
    commands = ("sh", "sleep", "cat", "ip", "ping", "ls", "env", "id", "grep", "touch", "wget", "nslookup", "timeout")
    bash = archive.with_name("bash")
    bash.write_text('#!/bin/sh\nexec sh "$@"\n')  # jobs of users call it by this name
    links = {f"bin/{name}": "busybox" for name in commands}
    return _make(archive, BUSYBOX, {"bin/busybox": busybox, "bin/bash": bash}, links, {})


def make_alpine(busybox: pathlib.Path, archive: pathlib.Path) -> Image:
    """Make an image for training-operator's init container, which waits until a name can be resolved.

    Its nslookup succeeds if one of the search domains has the name. busybox's requires all, and its shell runs no other
    nslookup, so the shell is the machine's.
    """
    script = archive.with_name("nslookup")
    script.write_text('#!/bin/sh\nbusybox nslookup "$1" | grep -q "^Name:"\n')
    shell = pathlib.Path("/bin/sh").resolve()
    output = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    libraries = {path.lstrip("/"): pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", output)}
    files = {"bin/busybox": busybox, "bin/sh": shell, "bin/nslookup": script, **libraries}
    return _make(archive, ALPINE, files, {f"bin/{name}": "busybox" for name in ("seq", "sleep", "grep")}, {})


def make_pause(pause: pathlib.Path, archive: pathlib.Path) -> Image:
    """Make the image of a pod's sandbox container."""
    return _make(archive, services.PAUSE_IMAGE, {"pause": pause}, {}, {"Entrypoint": ["/pause"], "User": "65535"})


def make_program(program: pathlib.Path, name: str, archive: pathlib.Path) -> Image:
    """Make an image whose only file is a static program at /."""
    return _make(archive, name, {program.name: program}, {}, {})


def _make(
    archive: pathlib.Path,
    name: str,
    files: Mapping[str, pathlib.Path],
    links: Mapping[str, str],
    config: Mapping[str, Any],
) -> Image:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp"):
            tar.addfile(_describe(folder, type=tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755))
        for path, source in files.items():
            content = source.read_bytes()
            tar.addfile(_describe(path, size=len(content), mode=0o755), io.BytesIO(content))
        for path, target in links.items():
            tar.addfile(_describe(path, type=tarfile.SYMTYPE, linkname=target))
    digest = hashlib.sha256(layer.getbuffer()).hexdigest()
    write_archive(archive, name, [(digest, layer)], config)
    return Image(name, archive)


def write_layers(image: Image, layers: Sequence[pathlib.Path], config: Mapping[str, Any]) -> None:
    """Write an image whose layers, lowest first, are folders; every file belongs to root."""
    with tempfile.TemporaryDirectory(dir=image.archive.parent) as scratch, contextlib.ExitStack() as opened:
        streams = []
        for index, layer in enumerate(layers):
            path = pathlib.Path(scratch) / str(index)
            with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
                for entry in sorted(layer.iterdir()):
                    tar.add(entry, entry.name, filter=_give_to_root)
            stream = opened.enter_context(path.open("rb"))
            streams.append((hashlib.file_digest(stream, "sha256").hexdigest(), stream))
        write_archive(image.archive, image.name, streams, config)


def _give_to_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _describe(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def write_archive(
    archive: pathlib.Path, name: str, layers: Sequence[tuple[str, io.IOBase]], config: Mapping[str, Any]
) -> None:
    """Write a docker-archive of layers, each a tar file with its sha256, and an image's `config`."""
    environment = [variable for variable in config.get("Env", []) if variable.startswith("PATH=")] or [_PATH]
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": {**config, "Env": [*environment, *(e for e in config.get("Env", []) if not e.startswith("PATH="))]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest, _ in layers]},
    }
    text = json.dumps(document).encode()
    identity = hashlib.sha256(text).hexdigest()
    paths = [f"{digest}/layer.tar" for digest, _ in layers]
    manifest = [{"Config": f"{identity}.json", "RepoTags": [name], "Layers": paths}]
    temporary = archive.with_name(f".{archive.name}")
    with tarfile.open(temporary, "w") as tar:
        tar.addfile(_describe(f"{identity}.json", size=len(text)), io.BytesIO(text))
        for path, (_, layer) in zip(paths, layers, strict=True):
            size = layer.seek(0, io.SEEK_END)
            layer.seek(0)
            tar.addfile(_describe(path, size=size), layer)  # type: ignore[arg-type]  # any binary stream
        listing = json.dumps(manifest).encode()
        tar.addfile(_describe("manifest.json", size=len(listing)), io.BytesIO(listing))
    temporary.replace(archive)
