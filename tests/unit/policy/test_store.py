from railwright.cluster import policies

GOOD = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
BAD = GOOD.replace("tcp", "tpc")


def test_a_new_store_has_no_policy_and_is_not_valid():
    store = policies.PolicyStore()
    assert (store.current, store.valid, store.errors, store.generation) == (None, False, (), 0)


def test_the_last_good_policy_stays_through_a_bad_one_and_a_deletion():
    store = policies.PolicyStore()
    good = policies.read(GOOD)
    store.take(good)
    assert (store.current, store.valid, store.generation) == (good, True, 1)
    bad = policies.read(BAD)
    store.take(bad)
    assert isinstance(bad, policies.Rejected)
    assert (store.current, store.valid, store.errors, store.generation) == (good, False, bad.errors, 1)
    store.withdraw()
    assert (store.current, store.valid, store.generation) == (good, False, 1)
    assert "deleted" in store.errors[0].message
    store.take(policies.read(GOOD))
    assert (store.valid, store.errors, store.generation) == (True, (), 2)


def test_subscribers_are_called_at_every_change_of_state():
    store, heard = policies.PolicyStore(), []
    store.subscribe(lambda changed: heard.append((changed.valid, changed.generation)))
    store.take(policies.read(GOOD))
    store.take(policies.read(BAD))
    store.withdraw()
    assert heard == [(True, 1), (False, 1), (False, 1)]
