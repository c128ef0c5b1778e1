"""Patch operations applied by an independent RFC 6902 implementation: the result has every change."""

import copy
import json

import jsonpatch
import msgspec
from admitting import view
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import views
from railwright.fabric.injection import applied_pod, pod_changes
from webhook import patch

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


def why(change_type, **fields):
    return change_type(entry="e", reason="r", **fields)


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
CHANGES = st.lists(
    st.one_of(
        st.builds(why, st.just(pod_changes.SetAnnotation), key=KEYS, value=TEXT),
        st.builds(
            why,
            st.just(pod_changes.AddResource),
            container=INDEX,
            resource=st.just("x/y") | KEYS,
            quantity=st.integers(1, 9),
        ),
        st.builds(
            why, st.just(pod_changes.AddVolume), added=st.fixed_dictionaries({"name": TEXT, "emptyDir": st.just({})})
        ),
        st.builds(
            why,
            st.just(pod_changes.AddMount),
            container=INDEX,
            mount=st.fixed_dictionaries({"name": TEXT, "mountPath": TEXT}),
        ),
        st.builds(why, st.just(pod_changes.AddInitContainer), added=st.fixed_dictionaries({"name": TEXT})),
        st.builds(why, st.just(pod_changes.AddCapability), container=INDEX, capability=st.just("IPC_LOCK")),
        st.builds(why, st.just(pod_changes.SetPrivileged), container=INDEX),
        st.builds(why, st.just(pod_changes.SetEnv), container=INDEX, name=st.just("NEW"), value=TEXT),
        st.builds(why, st.just(pod_changes.SetClaim), name=st.just("railwright"), template=TEXT),
        st.builds(why, st.just(pod_changes.UseClaim), container=INDEX, claim=st.just("railwright")),
    ),
    max_size=8,
)


def apply(tree: dict, changes) -> dict:
    operations = patch.build_operations(view(tree), changes)
    return jsonpatch.apply_patch(copy.deepcopy(tree), json.loads(msgspec.json.encode(operations)))


def last_of_each(changes):
    """Return the last change of each key, because only that one remains."""
    keyed = {}
    for number, change in enumerate(changes):
        match change:
            case pod_changes.SetAnnotation(key=key):
                keyed["annotation", key] = change
            case pod_changes.AddResource(container=container, resource=resource):
                keyed["resource", container, resource] = change
            case _:
                keyed[number] = change
    return list(keyed.values())


@given(pods(), CHANGES.map(last_of_each))
def test_the_patch_gives_the_pod_of_the_changes_with_or_without_parents(tree, changes):
    result = apply(tree, changes)
    changed_view = pod_changes.apply(applied_pod.read(view(tree), "prod"), changes)
    assert (changed_view.metadata, changed_view.spec) == (view(result).metadata, view(result).spec)


@given(pods(), CHANGES.map(last_of_each))
def test_nothing_a_user_wrote_is_lost_or_moved(tree, changes):
    touched = {change.resource for change in changes if isinstance(change, pod_changes.AddResource)}
    keys = {change.key for change in changes if isinstance(change, pod_changes.SetAnnotation)}
    assert is_unchanged(tree, apply(tree, changes), touched | keys)


def is_unchanged(before: object, after: object, touched: set[str]) -> bool:
    """Return whether all of `before` is still in `after`: members in place, list entries first and in order."""
    if before is None:
        return True
    if isinstance(before, dict):
        return all(
            key in touched or is_unchanged(value, after[key], touched) for key, value in before.items() if value != {}
        )
    if isinstance(before, list):
        return all(is_unchanged(old, new, touched) for old, new in zip(before, after[: len(before)], strict=True))
    return before == after


@given(pods(), CHANGES.map(last_of_each))
def test_the_same_changes_give_the_same_bytes_and_only_additions(tree, changes):
    first, second = (patch.build_operations(view(tree), changes) for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    assert {operation["op"] for operation in first} <= {"add"}
    parents = [op["path"] for op in first if op["value"] in ({}, [])]
    assert len(parents) == len(set(parents)), "a parent made twice would empty itself"


def test_without_changes_there_are_no_operations():
    assert patch.build_operations(views.Pod(), ()) == []


def test_an_entry_of_env_is_replaced_in_place_with_its_value_from():
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}, {"name": "C", "value": "3"}]
    tree = {"metadata": {}, "spec": {"containers": [{"name": "c", "env": env}]}}
    result = apply(tree, [why(pod_changes.SetEnv, container=0, name="B", value="2", index=1)])
    assert result["spec"]["containers"][0]["env"] == [env[0], {"name": "B", "value": "2"}, env[2]]


def test_entries_of_env_are_removed_from_the_last_to_the_first():
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    tree = {"metadata": {}, "spec": {"containers": [{"name": "c", "env": env}]}}
    result = apply(
        tree, [why(pod_changes.UnsetEnv, container=0, index=2), why(pod_changes.UnsetEnv, container=0, index=0)]
    )
    assert result["spec"]["containers"][0]["env"] == [env[1]]


METHODS = ("apply", "patch")


def list_kinds(base: type = pod_changes.Change) -> set[type]:
    kinds = {kind for direct in base.__subclasses__() for kind in (direct, *list_kinds(direct))}
    return {kind for kind in kinds if not kind.__name__.startswith("_")}


def test_every_kind_of_change_has_an_order_two_methods_and_a_title():
    for kind in list_kinds():
        assert pod_changes.POD <= kind.order <= pod_changes.REMOVALS
        assert all(getattr(kind, name) is not getattr(pod_changes.Change, name) for name in METHODS)
        assert hasattr(kind, "title") or "describe" in vars(kind)


@given(pods(), CHANGES.map(last_of_each))
def test_the_operations_of_the_changes_one_by_one_are_the_patch(tree, changes):
    grouped = patch.group_by_change(view(tree), changes)
    assert [change for change, _ in grouped] == list(changes)
    assert [operation for _, made in grouped for operation in made] == patch.build_operations(view(tree), changes)


def test_claims_and_resources_are_removed_wherever_they_are():
    resources = {"limits": {"x/y": "1", "cpu": "1"}, "requests": {"cpu": "1"}}
    resources["claims"] = [{"name": name} for name in ("railwright", "theirs", "railwright-2")]
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("theirs", "railwright", "railwright-2")]
    container = {"name": "c", "image": "i", "resources": resources}
    tree = {"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": entries}}
    changes = [
        why(pod_changes.RemoveResource, container=0, resource="x/y"),
        why(pod_changes.SetClaim, name="railwright", template="other", index=1),
        why(pod_changes.RemoveClaims, claims=("railwright-2",)),
    ]
    result = apply(tree, changes)
    assert result["spec"]["resourceClaims"] == [
        {"name": "theirs", "resourceClaimTemplateName": "t"},
        {"name": "railwright", "resourceClaimTemplateName": "other"},
    ]
    assert result["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1"},
        "requests": {"cpu": "1"},
        "claims": [{"name": "railwright"}, {"name": "theirs"}],
    }
    mutated = pod_changes.apply(applied_pod.read(view(tree), "prod"), changes)
    assert mutated.spec == view(result).spec
