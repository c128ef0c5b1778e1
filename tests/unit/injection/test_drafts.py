"""Verbs of a draft: jsonpatch applies their operations to the document, with the draft's pod as the result."""

import copy
import json

import jsonpatch
import msgspec
from admitting import decode_pod
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.injection import drafts

KEYS = st.text(st.sampled_from('abc/~.-0é"\\'), min_size=1, max_size=8)
TEXT = st.text(max_size=8).filter(lambda text: text.isprintable())
EMPTIES = {
    "annotations": {},
    "volumes": [],
    "initContainers": [],
    "env": [],
    "volumeMounts": [],
    "resources": {},
    "requests": {},
    "limits": {},
    "securityContext": {},
    "capabilities": {},
    "add": [],
    "claims": [],
    "resourceClaims": [],
}


ENTRY = "e"


def set_in(tree: dict, key: str, how: str, full: object) -> object:
    """Set a parent in one of its four possible forms."""
    if how != "absent":
        tree[key] = {"null": None, "empty": copy.copy(EMPTIES[key]), "full": full}[how]
    return tree.get(key)


HOW = st.sampled_from(["absent", "null", "empty", "full"])


@st.composite
def containers(draw, name: str) -> dict:
    tree: dict = {"name": name, "image": "i"}
    set_in(tree, "env", draw(HOW), [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}])
    set_in(tree, "volumeMounts", draw(HOW), [{"name": "data", "mountPath": "/data"}])
    resources = set_in(tree, "resources", draw(HOW), {})
    if resources is not None:
        set_in(resources, "requests", draw(HOW), {"cpu": "1", "x/y": "1"})
        set_in(resources, "limits", draw(HOW), {"cpu": "1", "x/y": "2"})
        set_in(resources, "claims", draw(HOW), [{"name": "theirs"}])
    context = set_in(tree, "securityContext", draw(HOW), {"runAsUser": 0})
    if context is not None:
        capabilities = set_in(context, "capabilities", draw(HOW), {"drop": ["ALL"]})
        if capabilities is not None:
            set_in(capabilities, "add", draw(HOW), ["SYS_PTRACE"])
    return tree


@st.composite
def pods(draw) -> dict:
    metadata: dict = {"name": "p"}
    set_in(metadata, "annotations", draw(HOW), {"theirs/key": "v"})
    spec: dict = {"containers": [draw(containers("first")), draw(containers("second"))]}
    set_in(spec, "volumes", draw(HOW), [{"name": "data"}])
    set_in(spec, "initContainers", draw(HOW), [{"name": "fetch", "image": "i"}])
    set_in(spec, "resourceClaims", draw(HOW), [{"name": "theirs", "resourceClaimName": "c"}])
    return {"metadata": metadata, "spec": spec}


INDEX = st.integers(0, 1)
RESOURCES = st.just("x/y") | KEYS


def call_on_spec(verb, *arguments):
    return lambda draft: getattr(draft.spec, verb)(*arguments, ENTRY)


def call_on_container(index, verb, *arguments):
    return lambda draft: getattr(draft.container(index), verb)(*arguments, ENTRY)


def read_after(edit):
    """Return the edit, followed by a mutator's reading of the pod."""
    return lambda draft: (edit(draft), draft.pod)


# a name for what an edit sets, of which only the last edit remains, and the edit
EDITS = st.one_of(
    st.builds(lambda key, text: (key, lambda draft: draft.set_annotation(key, text, ENTRY)), KEYS, TEXT),
    st.builds(
        lambda index, name, amount: (
            (index, name),
            lambda draft: draft.container(index).request([(name, amount, ENTRY)]),
        ),
        INDEX,
        RESOURCES,
        st.integers(1, 9),
    ),
    st.builds(lambda name: (None, call_on_spec("append", "volumes", {"name": name, "emptyDir": {}})), TEXT),
    st.builds(
        lambda index, path: (
            None,
            call_on_container(index, "append", "volumeMounts", {"name": "n", "mountPath": path}),
        ),
        INDEX,
        TEXT,
    ),
    st.builds(lambda name: (None, call_on_spec("append", "initContainers", {"name": name})), TEXT),
    st.builds(lambda index: (None, call_on_container(index, "add_capability", "IPC_LOCK")), INDEX),
    st.builds(lambda index: (None, call_on_container(index, "set_privileged")), INDEX),
    st.builds(lambda index, text: (None, call_on_container(index, "set_env", "NEW", text)), INDEX, TEXT),
    st.builds(
        lambda text: (None, call_on_spec("append", "resourceClaims", {"name": "c", "resourceClaimTemplateName": text})),
        TEXT,
    ),
    st.builds(lambda index: (None, call_on_container(index, "use_claim", "railwright")), INDEX),
    st.just((None, lambda draft: draft.spec.set_field("hostNetwork", True, ENTRY))),
    st.builds(lambda index: (None, lambda draft: draft.container(index).set_field("command", ["a"], ENTRY)), INDEX),
)
EDIT_LISTS = st.lists(st.tuples(EDITS, st.booleans()), max_size=8).map(
    lambda drawn: [(what, read_after(edit) if is_read else edit) for (what, edit), is_read in drawn]
)


def edit_pod(tree: dict, edits) -> drafts.Draft:
    draft = drafts.Draft(decode_pod(tree))
    for _, edit in edits:
        edit(draft)
    return draft


def list_operations(draft: drafts.Draft) -> list[dict]:
    return json.loads(msgspec.json.encode([operation for change in draft.changes for operation in change.operations]))


def apply(tree: dict, draft: drafts.Draft) -> dict:
    return jsonpatch.apply_patch(copy.deepcopy(tree), list_operations(draft))


@given(pods(), EDIT_LISTS)
def test_the_operations_give_the_pod_of_the_draft_with_or_without_parents(tree, edits):
    draft = edit_pod(tree, edits)
    result = decode_pod(apply(tree, draft))
    assert (draft.pod.metadata, draft.pod.spec) == (result.metadata, result.spec)


@given(pods(), EDIT_LISTS)
def test_nothing_a_user_wrote_is_lost_or_moved(tree, edits):
    touched = {what if isinstance(what, str) else what[1] for what, _ in edits if what} | {"hostNetwork", "command"}
    assert is_unchanged(tree, apply(tree, edit_pod(tree, edits)), touched)


def is_unchanged(before: object, after: object, touched: set[str]) -> bool:
    """Return True if `after` contains all of `before`: members in place, list entries first and in order."""
    if before is None:
        return True
    if isinstance(before, dict):
        return all(
            key in touched or is_unchanged(value, after[key], touched) for key, value in before.items() if value != {}
        )
    if isinstance(before, list):
        return all(is_unchanged(old, new, touched) for old, new in zip(before, after[: len(before)], strict=True))
    return before == after


def test_an_equal_amount_keeps_its_spelling():
    resources = {"limits": {"x/y": "1000m"}, "requests": {"x/y": 2}}
    tree = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    draft = edit_pod(tree, [(None, lambda draft: draft.container(0).request([("x/y", 1, ENTRY)]))])
    assert apply(tree, draft)["spec"]["containers"][0]["resources"] == {
        "limits": {"x/y": "1000m"},
        "requests": {"x/y": "1"},
    }
    assert draft.pod.spec == decode_pod(apply(tree, draft)).spec


def test_parents_are_those_of_the_object_that_was_written():
    """The pod of a template has volumes of its controller, which the template lacks."""
    written = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    mount = {"name": "theirs", "mountPath": "/theirs"}
    created = {"containers": [{"name": "c", "volumeMounts": [mount]}], "volumes": [{"name": "theirs"}]}
    draft = drafts.Draft(decode_pod({"metadata": {}, "spec": created}), decode_pod(written))
    draft.spec.append("volumes", {"name": "ours"}, ENTRY)
    draft.container(0).append("volumeMounts", {"name": "ours", "mountPath": "/ours"}, ENTRY)
    spec = apply(written, draft)["spec"]
    assert spec["volumes"] == [{"name": "ours"}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "ours", "mountPath": "/ours"}]
    assert [volume.name for volume in draft.pod.spec.volumes] == ["theirs", "ours"]
