"""Views of Events, decoded by msgspec as those in `views`."""

from railwright.fabric import views


class ObjectReference(views.View, frozen=True):
    """Object that an Event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSource(views.View, frozen=True):
    """Component that wrote an Event."""

    component: str = ""


class Event(views.View, frozen=True):
    """An Event (core/v1). Times are RFC 3339; writers leave those that they do not use null."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: EventSource | None = None
    reporting_component: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    count: int | None = None
