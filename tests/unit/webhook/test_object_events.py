"""Events on the ConfigMap with the policy."""

from railwright.cluster import policies
from railwright.fabric import names, views
from webhook import object_events

TEXT = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
INVALID = TEXT.replace("tcp", "tpc")
NONE, LAST = "there is no policy in force", "the last valid policy stays in force"


class Poster:
    def __init__(self) -> None:
        self.posted: list[tuple[str, str, bool, str, str]] = []

    def post(self, involved, *, warning: bool, reason: str, message: str) -> None:
        self.posted.append((involved.kind, involved.uid, warning, reason, message))

    def take(self) -> list[tuple[str, str, bool, str, str]]:
        taken, self.posted = self.posted, []
        return taken


def config_map(text: str) -> views.ConfigMap:
    metadata = views.ObjectMeta(name=names.POLICY_CONFIGMAP, uid="c")
    return views.ConfigMap(metadata=metadata, data={names.POLICY_KEY: text})


def test_an_invalid_policy_and_its_correction_are_events_on_the_config_map():
    poster, store = Poster(), policies.PolicyStore()
    object_events.PolicyEvents(poster, store)
    store.replace([config_map(INVALID)])
    ((*about, message),) = poster.take()
    assert about == ["ConfigMap", "c", True, "PolicyInvalid"]
    assert message.startswith(f"{NONE}; line 2: fabrics.f.transport: ")
    store.upsert(config_map(TEXT))
    assert [event[:4] for event in poster.take()] == [("ConfigMap", "c", False, "PolicyInForce")]
    store.upsert(config_map(TEXT))
    assert poster.take() == [], "it was valid before"
    store.upsert(config_map("fabrics: {}"))
    assert [event[4].partition("; ")[0] for event in poster.take()] == [LAST]


def test_after_a_restart_one_event_names_the_errors_and_that_the_last_valid_policy_is_in_force():
    poster, store = Poster(), policies.PolicyStore()
    store.last_valid = policies.read(TEXT)
    object_events.PolicyEvents(poster, store)
    store.upsert(config_map(INVALID))
    assert [event[4].partition("; ")[0] for event in poster.take()] == [LAST]
