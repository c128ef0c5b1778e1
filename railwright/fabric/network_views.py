"""Views of the networks of Multus, decoded by msgspec as those in `views`."""

from railwright.fabric import views


class NetworkAttachmentDefinition(views.View, frozen=True):
    """A Multus network. Its resourceName annotation names the device plugin's resource."""

    metadata: views.ObjectMeta = views.ObjectMeta()
