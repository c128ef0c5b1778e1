"""Events on the ConfigMap with the policy."""

from railwright.cluster import policies
from railwright.fabric import names, views
from webhook import object_events

TEXT = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"


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


def config_map(text: str) -> views.ConfigMap:
    metadata = views.ObjectMeta(name=names.POLICY_CONFIGMAP, uid="c")
    return views.ConfigMap(metadata=metadata, data={names.POLICY_KEY: text})


def test_errors_are_posted_on_the_config_map_and_so_is_the_first_valid_policy_after_them():
    poster, store = Poster(), policies.PolicyStore()
    object_events.PolicyEvents(poster, store)
    store.replace([config_map(TEXT.replace("tcp", "tpc"))])
    assert poster.take() == [("ConfigMap", "c", True, "PolicyInvalid")]
    assert poster.messages[0].startswith("there is no policy in force; line 2: fabrics.f.transport: ")
    store.upsert(config_map(TEXT))
    assert poster.take() == [("ConfigMap", "c", False, "PolicyInForce")]
    store.upsert(config_map(TEXT))
    assert poster.take() == [], "it was valid before"
    store.upsert(config_map("fabrics: {}"))
    assert poster.messages[-1].startswith("the last valid policy stays in force; ")
