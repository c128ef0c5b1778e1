"""From the policy ConfigMap to the policy store: the text of its one key, and its absence."""

from collections.abc import Sequence

from cluster import policies
from fabric import names, views


class PolicyConfigMap:
    """A sink for the ConfigMap that holds the policy; other ConfigMaps are not looked at."""

    def __init__(self, store: policies.PolicyStore) -> None:
        self._store = store
        self.uid = ""  # of the ConfigMap last seen: Events name it, or `kubectl describe` does not show them

    def replace(self, objects: Sequence[views.ConfigMap]) -> None:
        """The full list: the one ConfigMap, or none."""
        for obj in objects:
            if obj.metadata.name == names.POLICY_CONFIGMAP:
                self.upsert(obj)
                return
        self._store.withdraw()

    def upsert(self, obj: views.ConfigMap) -> None:
        """It appeared or changed. A ConfigMap without the key is an empty policy, and refused as one."""
        if obj.metadata.name == names.POLICY_CONFIGMAP:
            self.uid = obj.metadata.uid
            self._store.offer((obj.data or {}).get(names.POLICY_KEY, ""))

    def remove(self, obj: views.ConfigMap) -> None:
        """It is gone; the last good policy stays."""
        if obj.metadata.name == names.POLICY_CONFIGMAP:
            self._store.withdraw()
