"""Defines the rows of `railwright check` and runs them in order.

A row is a function of a snapshot of the cluster with the decorator `row`. Its docstring is the explanation that
`--explain` and docs/reference/check.md print; its fix has the commands of the installation. A failed row skips the
rows that name it in `after`; a failed fatal row skips all others.
"""

import enum
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.checking import snapshots
from railwright.cli.checking.snapshots import SkipError, get_map, get_value
from railwright.cluster.installed_names import CERTS, EXTENDER, NAMESPACE, POLICY, WEBHOOK
from railwright.fabric import text


class State(enum.StrEnum):
    """Outcome of a row. FAIL changes the exit code, WARN only with --strict. The detail of SKIP is the reason."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


PROBLEMS = (State.FAIL, State.WARN)


class Result(msgspec.Struct, frozen=True):
    """Result of a row for the cluster, or for one subject such as a fabric, as `-o json` prints it.

    `run_checks` fills `group` and the fields after it.
    """

    state: State
    detail: str = ""
    hint: str = ""  # the fix, "" unless the state is WARN or FAIL; a function of a row leaves out the row's own fix
    unread: bool = False  # the caller could not read what the row needs
    group: str = ""
    check: str = ""  # the row's anchor
    name: str = ""
    subject: str = ""
    waits_for: str = ""  # anchor of the failed row that skipped this one
    lasting: bool | None = None  # True if only a change by the operator ends this WARN or FAIL; None: by `Row.heals`


ok = functools.partial(Result, State.OK)
warn = functools.partial(Result, State.WARN)  # it works now, but not in every case
fail = functools.partial(Result, State.FAIL)
skip = functools.partial(Result, State.SKIP)  # the detail is the reason


def warn_if_any(problems: Iterable[str], good: str = "", fix: str = "") -> Result:
    """Return a warning with the first problems, or a passed result with the detail `good` if there is none."""
    listed = text.join_first(problems, 4)
    return warn(listed, fix) if listed else ok(good)


_Subjects = Callable[[snapshots.Snapshot], Mapping[str, Any]]  # lists the subjects of a row by name


class Row(msgspec.Struct, frozen=True):
    """One check, with its fix. `anchor` is its permanent identifier, in JSON and in the documentation."""

    anchor: str
    name: str  # states the healthy condition
    fix: str  # how to fix a failure, with the command, for `fill_placeholders`
    text: str  # explanation in Markdown
    assess: Callable[..., Result]  # of the snapshot, and with `each` of one subject
    each: _Subjects | None  # None: the row has no subjects
    after: Sequence[str]  # rows whose failure skips this one
    heals: bool  # True if a controller may end its failure, so that --wait waits for it; a result may differ


def row(
    fix: str, *, each: _Subjects | None = None, after: str = "", heals: bool = False
) -> Callable[[Callable[..., Result]], Row]:
    """Turn a function `check_ANCHOR` into a row, named by the first line of its docstring.

    The names in `after` are separated by blanks. ANCHOR/SUBJECT waits for one subject of a row.
    """

    def build(assess: Callable[..., Result]) -> Row:
        anchor = assess.__name__.removeprefix("check_").replace("_", "-")
        name, _, explanation = inspect.cleandoc(assess.__doc__ or "").partition("\n")
        return Row(anchor, name.removesuffix("."), fix, explanation.strip(), assess, each, after.split(), heals)

    return build


FATAL = ("api-reachable", "installed")  # nothing after these rows can be checked when they fail
Groups = Mapping[str, Sequence[Row]]


def run_checks(groups: Groups, snapshot: snapshots.Snapshot) -> Iterator[Result]:
    """Yield the results of all rows in order, at least one for each row."""
    deployments = snapshot.get_readable_objects("deployments")
    blocked_by: dict[str, str] = {}  # anchor of a failed or dependent row -> anchor of the row to fix first
    for group, item in ((group, item) for group, rows in groups.items() for item in rows):
        blocker = next((blocked_by[anchor] for anchor in (*FATAL, *item.after) if anchor in blocked_by), "")
        results = {"": skip(f"fix {blocker} first")} if blocker else _assess_row(item, snapshot)
        failed = [subject for subject, result in results.items() if result.state is State.FAIL]
        if blocker or failed:
            blocked_by[item.anchor] = blocker or item.anchor
        blocked_by |= {f"{item.anchor}/{subject}": item.anchor for subject in failed}
        for subject, result in results.items():
            is_problem = result.state in PROBLEMS
            hint = fill_placeholders(result.hint or item.fix, deployments) if is_problem else ""
            lasting = is_problem and (not item.heals if result.lasting is None else result.lasting)
            place = {"group": group, "check": item.anchor, "name": item.name, "subject": subject}
            yield msgspec.structs.replace(result, **place, hint=hint, waits_for=blocker, lasting=lasting)


def _assess_row(item: Row, snapshot: snapshots.Snapshot) -> Mapping[str, Result]:
    """Return the result of each subject of a row; "" is the subject of a row without any."""
    try:
        if item.each is None:
            return {"": item.assess(snapshot)}
        subjects = item.each(snapshot)
    except SkipError as error:
        return {"": skip(str(error), unread=error.unread)}
    results = {}
    for name, subject in subjects.items():
        try:
            results[name] = item.assess(snapshot, subject)
        except SkipError as error:
            results[name] = skip(str(error), unread=error.unread)
    return results or {"": skip("nothing to check")}


# --- fixes, by how railwright was installed -----------------------------------------------------------------

EDIT_POLICY = f"kubectl -n {NAMESPACE} edit configmap {POLICY}"
CREATE_POLICY = (
    f"describe your rails in policy.yaml (railwright policy schema has every key), then: kubectl -n {NAMESPACE} create "
    f"configmap {POLICY} --from-file=policy.yaml"
)
_APPLY = re.compile(r"\{apply(?: ([^}]+))?\}")
# Labels and annotations that GitOps tools write on what they deploy, with the kind whose name is their value. Argo CD's
# tracking-id is APPLICATION:GROUP/KIND:NAMESPACE/NAME. (Its docs: resource tracking; Flux's: spec.commonMetadata.)
_DEPLOYERS: Mapping[str, tuple[str, str]] = {
    "argocd.argoproj.io/tracking-id": ("Argo CD", "Application"),
    "argocd.argoproj.io/instance": ("Argo CD", "Application"),
    "helm.toolkit.fluxcd.io/name": ("Flux", "HelmRelease"),
    "kustomize.toolkit.fluxcd.io/name": ("Flux", "Kustomization"),
}


def fill_placeholders(fix: str, deployments: Iterable[Any] = ()) -> str:
    """Return a fix with the instruction to apply the installation of these Deployments again.

    `{apply}` stands for it, and `{apply KEY=VALUE}` for the one that also sets a value of the chart.
    """
    return _APPLY.sub(lambda match: _format_apply(deployments, match[1] or ""), fix)


def _format_apply(deployments: Iterable[Any], setting: str) -> str:
    """Return the instruction for a GitOps tool, Helm or kubectl; without Deployments, that for kubectl.

    A chart's value has to be set, because Helm would keep the previous one.
    """
    own = next(
        (item for item in deployments if get_value(item, "metadata", "name") in (WEBHOOK, EXTENDER, CERTS)), None
    )
    labels, annotations = (get_map(own, "metadata", key) for key in ("labels", "annotations"))
    for key, (tool, kind) in _DEPLOYERS.items():
        if value := labels.get(key) or annotations.get(key):
            return f"change it in the repository that {tool} ({kind} {value.partition(':')[0]}) deploys"
    if labels.get("app.kubernetes.io/managed-by") == "Helm":
        release = annotations.get("meta.helm.sh/release-name", "railwright")
        value = f" --set {setting}" if setting else ""
        return f"helm upgrade {release} CHART -n {NAMESPACE} --reset-then-reuse-values{value}"
    needed = f", which has to do what the chart's value {setting} does: docs/operator-guide.md" if setting else ""
    return f"kubectl apply -k FOLDER (with your kustomization.yaml{needed})"
