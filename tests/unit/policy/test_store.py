from railwright.cluster import policies

GOOD = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp}}\n"
BAD = GOOD.replace("tcp", "tpc")


def test_the_last_good_policy_stays_through_a_bad_one_and_a_deletion():
    store = policies.PolicyStore()
    good = policies.read(GOOD)
    store.take(good)
    assert (store.current, store.valid) == (good, True)
    bad = policies.read(BAD)
    store.take(bad)
    assert isinstance(bad, policies.Rejected)
    assert (store.current, store.valid, store.errors) == (good, False, bad.errors)
    store.replace([])
    assert (store.current, store.valid) == (good, False)
    assert "deleted" in store.errors[0].message
    store.take(policies.read(GOOD))
    assert (store.valid, store.errors) == (True, ())
