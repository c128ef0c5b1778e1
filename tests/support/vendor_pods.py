"""Compares the pods of a vendor's published job with those of the same job with one label, after admission."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import admitting
import meanings
import yaml

from railwright.fabric import names
from railwright.fabric.injection import facts
from railwright.fabric.lint import rank_contexts

Values = dict[str, Any]  # of a job, by the words under which a profile lists its differences
_MISSING = "(absent)"
_SOURCED = re.compile(r"(?:source|\.) (/[-\w./]+)")


class Profile(NamedTuple):
    """A profile for a node shape. `vendor` and `job` are replacements in the texts of these files."""

    folder: str
    differences: frozenset[str] = frozenset()
    vendor: Mapping[str, str] = {}
    job: Mapping[str, str] = {}

    def read(self, name: str) -> Any:
        """Return the job of `vendor.yaml` or `job.yaml` for the node shape."""
        text = (admitting.PROFILES / self.folder / f"{name}.yaml").read_text()
        for old, new in getattr(self, name).items():
            assert old in text
            text = text.replace(old, new)
        return yaml.safe_load(text)


def list_profiles() -> Iterator[Profile]:
    """Yield all profiles, those for similar node shapes after the first of their folder."""
    for path in sorted(admitting.PROFILES.glob("*/profile.yaml")):
        tree = yaml.safe_load(path.read_text())
        for variant in ({}, *tree.get("variants", ())):
            differences = frozenset(row["at"] for row in (*tree["differences"], *variant.get("differences", ())))
            yield Profile(path.parent.name, differences, variant.get("vendor", {}), variant.get("job", {}))


def list_common_differences() -> frozenset[str]:
    """Return the differences from the vendors' pods that all profiles may have."""
    return frozenset(row["at"] for row in yaml.safe_load((admitting.PROFILES / "differences.yaml").read_text()))


def admit_job(profile: Profile) -> dict[str, dict[str, Any]]:
    """Return the pods of the profile's job after admission, by role."""
    policy = admitting.policy((admitting.PROFILES / profile.folder / "policy.yaml").read_text())
    return {
        role: admitting.admitted(pod, policy, facts.ClusterFacts(namespace=pod["metadata"]["namespace"]))
        for role, pod in meanings.pods_of(profile.read("job")).items()
    }


def read_job(pods: Mapping[str, dict[str, Any]]) -> Values:
    """Return what the pods of a job request, mount and say, and the settings of its ranks."""
    values: Values = {f"ranks {name}": value for name, value in _read_settings(pods).items()}
    for role, pod in pods.items():
        values |= {f"{role} {path}": value for path, value in _read_pod(pod)}
    return values


def compare(profile: Profile) -> dict[str, tuple[Any, Any]]:
    """Return the values of the pods that differ, as (the vendor's, ours)."""
    vendor, ours = read_job(meanings.pods_of(profile.read("vendor"))), read_job(admit_job(profile))
    return {
        path: (vendor.get(path, _MISSING), ours.get(path, _MISSING))
        for path in sorted({*vendor, *ours})
        if vendor.get(path, _MISSING) != ours.get(path, _MISSING)
    }


def _read_settings(pods: Mapping[str, dict[str, Any]]) -> Values:
    """Return the effective settings of the ranks: what mpirun passes, then the environment and the file of a worker."""
    viewed = {role: admitting.view(pod) for role, pod in pods.items()}
    passed = tuple(
        setting
        for pod in viewed.values()
        for index in range(len(pod.spec.containers))
        for setting in rank_contexts.list_passed(pod, index)
    )
    workers = [pod for pod in viewed.values() if not rank_contexts.starts_ranks(pod)] or list(viewed.values())
    (worker,) = workers[:1]
    ranks = next(
        (
            index
            for index, container in enumerate(worker.spec.containers)
            if container.resources and container.resources.limits
        ),
        0,
    )
    context = rank_contexts.build(worker, ranks, rank_contexts.JobContext(passed=passed, has_own_ranks=not passed))
    return {name: setting.value for name, setting in context.effective.items()}


def _read_pod(pod: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    started = pod["spec"].get("initContainers", ())
    sidecars = [container for container in started if container.get("restartPolicy") == "Always"]
    containers = [*sidecars, *pod["spec"]["containers"]]
    meaning = meanings.meaning({**pod, "spec": {**pod["spec"], "containers": containers}})
    spec = meaning["spec"]
    for key, value in spec.items():
        if key not in {"initContainers", "containers", "affinity", "nodeSelector"}:
            yield key, value
    if meaning["networks"]:
        yield "networks", [selection.key for selection in meaning["networks"]]
    for key, value in meaning["annotations"].items():
        if not key.startswith(f"{names.DOMAIN}/"):
            yield f"annotation {key}", yaml.safe_load(value)
    for written, container in zip(containers, spec["containers"], strict=True):
        prefix = f"{container['name']} " if len(containers) > 1 else ""
        for path, value in (*_read_container(container, written), *_read_program(written, alone=len(containers) == 1)):
            yield f"{prefix}{path}", value


def _read_program(container: dict[str, Any], *, alone: bool) -> Iterator[tuple[str, Any]]:
    """Yield the scripts that the container sources; of containers beside that of the ranks, the whole program."""
    words = " ".join([*container.get("command", ()), *container.get("args", ())])
    yield from ((f"script {path}", True) for path in _SOURCED.findall(words))
    if not alone and "limits" not in container.get("resources", {}):
        yield from (
            (key, container[key]) for key in ("image", "command", "args", "env", "restartPolicy") if key in container
        )


def _read_container(container: dict[str, Any], written: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the mounts, devices and privileges of a container; `written` is the same container as in the pod."""
    read_only = {mount["mountPath"] for mount in written.get("volumeMounts", ()) if mount.get("readOnly")}
    for path, volume in container["volumeMounts"].items():
        if path != names.NCCL_CONF_PATH:
            ((kind, source),) = volume.items()
            yield path, kind
            yield from ((f"{path} {key}", value) for key, value in source.items())
            if kind == "hostPath" and path in read_only:
                yield f"{path} readOnly", True
    limits = container["resources"]["limits"]
    yield from ((resource, amount) for resource, amount in limits.items() if resource != names.MANAGED_RESOURCE)
    security = container.get("securityContext", {})
    yield from ((capability, True) for capability in security.get("capabilities", {}).get("add", ()))
    yield from ((key, value) for key, value in security.items() if key != "capabilities" and value is not False)
