"""Events on the objects that hold the policy: about errors on the one in force, about an override on the ConfigMap."""

import pytest

from railwright.cluster import policies, sources
from railwright.fabric import names, views
from webhook import object_events

TEXT = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics: {f: {transport: tcp}}\n"
SPEC = {"fabrics": {"f": {"transport": "tcp"}}}


class Poster:
    def __init__(self) -> None:
        self.posted: list[tuple[str, str, bool, str]] = []
        self.messages: list[str] = []

    def post(self, involved, *, warning: bool, reason: str, message: str) -> None:
        self.posted.append((involved.kind, involved.uid, warning, reason))
        self.messages.append(message)

    def take(self) -> list[tuple[str, str, bool, str]]:
        taken, self.posted = self.posted, []
        return taken


def config_map(text: str = TEXT, version: str = "1") -> views.ConfigMap:
    metadata = views.ObjectMeta(name=names.POLICY_CONFIGMAP, uid="c", resource_version=version)
    return views.ConfigMap(metadata=metadata, data={names.POLICY_KEY: text})


def resource(spec: dict, version: str = "1") -> views.FabricPolicy:
    metadata = views.PolicyMeta(name=names.POLICY_CONFIGMAP, uid="r", resource_version=version)
    return views.FabricPolicy(metadata=metadata, spec=spec)


@pytest.fixture
def poster() -> Poster:
    return Poster()


@pytest.fixture
def objects(poster) -> sources.PolicyObjects:
    store = policies.PolicyStore()
    made = sources.PolicyObjects(store, is_resource_watched=True)
    object_events.PolicyEvents(poster, store, made)
    return made


def test_an_overridden_config_map_gets_an_event_once_and_at_each_edit(poster, objects):
    objects.config_map.replace([config_map()])
    objects.resource.replace([resource(SPEC)])
    assert poster.take() == [("ConfigMap", "c", True, "PolicyOverridden")]
    assert poster.messages[0] == (
        "FabricPolicy railwright-system/railwright-policy is in force: while it exists, this ConfigMap has no effect."
        " Edit or delete the FabricPolicy"
    )
    objects.resource.upsert(resource(SPEC, "2"))
    objects.config_map.replace([config_map()])
    assert poster.take() == []
    objects.config_map.upsert(config_map(version="2"))
    assert poster.take() == [("ConfigMap", "c", True, "PolicyOverridden")]


def test_a_config_map_in_force_again_gets_an_event(poster, objects):
    objects.resource.replace([resource(SPEC)])
    objects.config_map.replace([config_map()])
    poster.take()
    objects.resource.remove(resource(SPEC))
    assert poster.take() == [("ConfigMap", "c", False, "PolicyInForce")]
    assert poster.messages[-1] == (
        "FabricPolicy railwright-system/railwright-policy was deleted: this ConfigMap has an effect again"
    )


def test_one_object_alone_overrides_nothing(poster, objects):
    objects.resource.replace([])
    objects.config_map.replace([config_map()])
    objects.config_map.remove(config_map())
    poster.take()
    objects.resource.upsert(resource(SPEC))
    assert {reason for _, _, _, reason in poster.take()} <= {"PolicyInForce"}


def test_errors_are_posted_on_the_object_in_force(poster, objects):
    objects.resource.replace([resource({"fabrics": {"f": {"transport": "tpc"}}})])
    assert poster.take() == [("FabricPolicy", "r", True, "PolicyInvalid")]
    assert poster.messages[0].startswith("there is no policy in force; spec.fabrics.f.transport: ")
    objects.resource.upsert(resource(SPEC, "2"))
    assert poster.take() == [("FabricPolicy", "r", False, "PolicyInForce")]
    objects.resource.remove(resource(SPEC))
    objects.config_map.replace([])
    objects.config_map.upsert(config_map("fabrics: {}"))
    assert {posted[:2] for posted in poster.take()[-1:]} == {("ConfigMap", "c")}
