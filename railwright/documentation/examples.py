"""Files of the tree inside pages, and what admission makes of them: the webhook's own answer, never typed by hand.

Owns the form. The answer is `railwright.cli.explanation.account`'s, the same that `railwright explain` shows.
"""

import difflib
import json
import pathlib
from collections.abc import Sequence

from railwright.cli.explanation import account, manifests, picture, templates
from railwright.cluster import policies
from railwright.fabric import names
from railwright.fabric.policy import model

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
_CONTEXT = 4  # unchanged lines around a change


def included(path: str) -> str:
    """A file of the tree as a code block, its name as the title."""
    text = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return f'```yaml title="{path}"\n{text}\n```'


def admitted(site: str) -> str:
    """What becomes of the pods of a site's job: the pod as a diff, then each change and its reason."""
    alike: dict[tuple[account.Why, ...], list[account.Account]] = {}
    for each in accounts(EXAMPLES / site / "job.yaml", EXAMPLES / site / "policy.yaml"):
        alike.setdefault(tuple(each.changes), []).append(each)
    return "\n\n".join(_told(first, others) for first, *others in alike.values())


def accounts(job: pathlib.Path, policy: pathlib.Path) -> list[account.Account]:
    """What admission answers for every template of a manifest."""
    found = accepted(policy)
    caches = account.known(None)
    trees = manifests.read(job.read_text(encoding="utf-8"), str(job))
    made = [each for tree in trees for each in templates.of(tree, templates.DEFAULT_NAMESPACE) or ()]
    return [account.give(each, found, caches) for each in made]


def accepted(path: pathlib.Path) -> model.Policy:
    """The policy of a file. Raises TypeError for one that would be refused."""
    found = policies.read(path.read_text(encoding="utf-8"))
    if isinstance(found, policies.Rejected):
        raise TypeError(f"{path}: {found.errors[0].path}: {found.errors[0].message}")
    return found


def _told(given: account.Account, alike: Sequence[account.Account]) -> str:
    """One template; `alike` are the others of the job that get the same."""
    title = f"**{_of(given)}**: fabric `{given.fabric}`, role {given.role}."
    if alike:
        title += f" The same for {', '.join(map(_of, alike))}."
    rows = [f"| {_cell(each.change)} | {_cell(each.reason)} |" for each in given.changes]
    said = [f"- warning: {_cell(each)}" for each in given.warnings]
    table = ["| change | why |", "|---|---|", *rows, *(["", *said] if said else [])]
    return "\n".join([title, "", "```diff", _difference(given), "```", "", *table])


def _of(given: account.Account) -> str:
    what = given.template or given.object
    return what if given.pods is None else f"{what} ({given.pods} pod{'' if given.pods == 1 else 's'})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _difference(given: account.Account) -> str:
    before, after = _lines(given.before), _lines(given.after)
    lines = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]
    return "\n".join("..." if line.startswith("@@") else line for line in lines)


def _lines(pod: account.Tree) -> list[str]:
    """The pod as YAML, its record as the summary that it is for a reader: the policy's digest is left out."""
    annotations = dict(manifests.mapping(pod, "metadata", "annotations"))
    text = annotations.pop(names.INJECTION, None)
    if text:
        record = {key: value for key, value in json.loads(text).items() if key in {"fabric", "role", "containers"}}
        annotations[names.INJECTION] = json.dumps(record)[:-1] + ", ...}"
    shown = {**pod, "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})}}
    return picture.lines(shown)
