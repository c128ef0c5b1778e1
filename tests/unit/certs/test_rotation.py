"""Rotation as a state machine: no TLS handshake fails after crashes or overwritten objects."""

import dataclasses
import datetime as dt

import exploration
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from certs import inventory, pki, rotation, schedules

START = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
SECOND, DAY = dt.timedelta(seconds=1), dt.timedelta(days=1)
SPECS = (
    inventory.CertificateSpec("webhook", "railwright-webhook", pki.Usage.SERVER, ("a.svc",)),
    inventory.CertificateSpec("extender", "railwright-extender", pki.Usage.SERVER, ("b.svc",)),
)
CALLER = inventory.CertificateSpec("kube-scheduler", "kube-scheduler", pki.Usage.CLIENT)
HOOKS = ("MutatingWebhookConfiguration/pods", "ValidatingWebhookConfiguration/policies")
JUNK = pki.issue_ca("junk", now=START, lifetime=4000 * DAY)


@dataclasses.dataclass
class Value:
    """Content of an object, stored at `since`; `ours` is False if another writer wrote it."""

    since: float
    content: object
    ours: bool = True
    forgotten: bool = False  # a leaf of a CA that others deleted from every object: nobody can trust it again


class World:
    """Objects with earlier versions, two clocks, and rotators that can stop between any two writes."""

    def __init__(self, specs=SPECS, overlap=schedules.OVERLAP) -> None:
        self.specs, self.overlap = specs, overlap
        self.time, self.ahead = 0.0, dt.timedelta()  # real seconds; how far the wall clock has been set
        empty = {"keyring": rotation.Keyring(), **dict.fromkeys(HOOKS, b"")}
        leaves = {leaf.name: rotation.StoredCertificate() for leaf in specs}
        self.past = {name: [Value(-1e9, content, ours=False)] for name, content in {**empty, **leaves}.items()}
        self.done: list[rotation.Action] = []

    @property
    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.time) + self.ahead

    def current(self, name):
        return self.past[name][-1].content

    @property
    def keyring(self) -> rotation.Keyring:
        return self.current("keyring")

    def see(self, *, renew=False) -> rotation.Situation:
        leaves = {leaf.name: self.current(leaf.name) for leaf in self.specs}
        bundles = {name: self.current(name) for name in HOOKS}
        return rotation.Situation(self.keyring, leaves, bundles, self.specs, self.now, self.overlap, renew)

    def versions(self):
        return {name: len(values) for name, values in self.past.items()}

    def put(self, name, content, *, ours=True):
        self.past[name].append(Value(self.time, content, ours))
        if not ours:
            self.mark_forgotten()

    def mark_forgotten(self) -> None:
        """Mark the server certificates whose CA is in no object any more; rotators do not know of them."""
        seen = self.see()
        known = {*seen.keyring.trusted}
        known.update(part for stored in seen.certificates.values() for part in pki.split_bundle(stored.trusted))
        for leaf in self.specs:
            for held in self.visible(leaf.name):
                pair = held.content.pair
                held.forgotten |= pair is not None and pki.find_issuer(pair.certificate_pem, known) is None

    def write(self, writes: rotation.Step, versions, crash_after=99) -> bool:
        """Write in order, but nothing over a newer version, as the API server would. Return True if all was written."""
        changes = {} if writes.keyring is None else {"keyring": writes.keyring}
        changes |= writes.certificates
        if writes.bundle is not None:
            changes |= {name: writes.bundle for name in HOOKS if self.current(name) != writes.bundle}
        for done, (name, content) in enumerate(changes.items()):
            if done >= crash_after or len(self.past[name]) != versions[name]:
                return False
            self.put(name, content)
            self.check(name)
        return True

    def look(self, crash_after=99, *, renew=False) -> rotation.Step | rotation.Wait:
        outcome = rotation.plan_step(self.see(renew=renew))
        if isinstance(outcome, rotation.Step):
            self.done.append(outcome.action)
            self.write(outcome, self.versions(), crash_after)
        return outcome

    def settled(self) -> rotation.Wait:
        """Run steps until the next one is only due later."""
        for _ in range(300):
            decision = self.look()
            if isinstance(decision, rotation.Wait):
                if not decision.soon:
                    return decision
                self.time += max((decision.until - self.now).total_seconds(), 1)
        raise AssertionError(f"never settles: {self.done[-20:]}")

    def days(self, number: float, step=1.0) -> None:
        for _ in range(int(number / step)):
            self.time += 86400 * step
            self.settled()

    def visible(self, name) -> list[Value]:
        """Return the versions of a Secret that a server may have: kubelets write its files some time later."""
        values, border = self.past[name], self.time - schedules.PROPAGATION.total_seconds()
        return [
            value for value, after in zip(values, [*values[1:], None], strict=True) if not after or after.since > border
        ]

    def check(self, written="") -> None:
        """Assert that each certificate in possible use verifies against the CA bundles, which API servers watch."""
        for leaf in self.specs:
            for held in self.visible(leaf.name):
                pair = held.content.pair
                if not held.ours or held.forgotten or pair is None or not pki.is_presentable(pair, self.now):
                    continue
                for believed in (self.past[place][-1] for place in HOOKS):
                    if believed.ours:
                        anchor = pki.find_issuer(pair.certificate_pem, pki.split_bundle(believed.content))
                        assert anchor, f"{leaf.name}, writing {written} after {self.done[-12:]}"

    def healthy(self) -> None:
        """Assert that the stored objects are complete."""
        for name in HOOKS:
            assert self.current(name) == self.keyring.bundle
        for leaf in self.specs:
            pair = self.current(leaf.name).pair
            assert pki.is_presentable(pair, self.now)
            assert pki.find_issuer(pair.certificate_pem, self.keyring.trusted)


class Rotating(RuleBasedStateMachine):
    """Random sequences of crashes, manual changes and writes of a second rotator."""

    @initialize(installed=st.booleans(), overlap=st.sampled_from([180 * SECOND, 30 * DAY]))
    def begin(self, installed, overlap):
        self.world = World(overlap=overlap)
        self.backup = rotation.Keyring()
        self.stale = None
        if installed:
            self.world.settled()

    @rule(seconds=st.sampled_from([1, 11, 190]))
    def nobody_looks_for_a_while(self, seconds):
        self.world.time += seconds

    @rule(looks=st.sampled_from([4, 8, 30]), every=st.sampled_from([1, 3]))
    def it_looks_and_looks(self, looks, every):
        for _ in range(looks):
            self.world.time += 0 if isinstance(self.world.look(), rotation.Step) else every

    @rule(number=st.sampled_from([1, 31]))
    def days_pass(self, number):
        self.world.days(number)

    @rule(crash_after=st.sampled_from([0, 1, 2, 3, 99]))
    def a_step_that_may_stop_halfway(self, crash_after):
        self.world.look(crash_after)

    @rule()
    def a_rotation_is_asked_for(self):
        self.world.look(renew=True)

    @rule(name=st.sampled_from(HOOKS), content=st.sampled_from([b"", b"no PEM", JUNK.certificate_pem]))
    def somebody_overwrites_a_bundle(self, name, content):
        self.world.put(name, content, ours=False)

    @rule()
    def somebody_deletes_the_authority(self):
        self.nobody_looks_for_a_while(190)  # so kubelets have written the last certificates
        self.world.put("keyring", rotation.Keyring(), ours=False)

    @rule()
    def somebody_keeps_a_backup(self):
        self.backup = self.world.keyring

    @rule()
    def somebody_restores_the_backup(self):
        self.nobody_looks_for_a_while(190)
        self.world.put("keyring", self.backup, ours=False)

    @rule(name=st.sampled_from([spec.name for spec in SPECS]))
    def somebody_deletes_a_leaf(self, name):
        self.world.put(name, rotation.StoredCertificate(), ours=False)

    @rule()
    def another_writer_looks(self):
        world = self.world
        outcome = rotation.plan_step(world.see())
        if isinstance(outcome, rotation.Step):
            self.stale = outcome, world.versions()

    @rule(crash_after=st.sampled_from([1, 99]))
    def and_writes_late(self, crash_after):
        if self.stale:
            self.world.write(*self.stale, crash_after)
            self.stale = None

    @rule()
    def it_settles(self):
        self.world.settled()
        self.world.healthy()

    @invariant()
    def no_handshake_of_ours_fails(self):
        if hasattr(self, "world"):
            self.world.check()


TestRotating = Rotating.TestCase
TestRotating.settings = settings(stateful_step_count=25, max_examples=exploration.choose(25, 200))


def test_the_first_run_issues_all_certificates_without_waiting():
    world = World()
    before = world.time
    world.settled()
    world.healthy()
    assert world.time == before, "an installation waits for nothing"
    assert len(world.keyring.trusted) == 1
    done = len(world.done)
    world.days(5)
    assert len(world.done) == done


def test_a_new_installation_after_deletion_of_the_namespace_does_not_wait():
    world = World()
    world.settled()
    for name in (spec.name for spec in SPECS):
        world.put(name, rotation.StoredCertificate(), ours=False)
    world.put("keyring", rotation.Keyring(), ours=False)  # the webhook configurations still have the old CA
    world.time += 600
    before = world.time
    world.settled()
    world.healthy()
    assert [value.since for spec in SPECS for value in world.past[spec.name][-1:]] == [before, before]


@pytest.mark.parametrize("is_in_rotation", [False, True])
def test_a_ca_restored_from_a_backup_issues_new_certificates_without_failed_handshakes(is_in_rotation):
    world = World((*SPECS, CALLER))
    world.settled()
    backup = world.keyring
    world.look(renew=True)
    backup = world.keyring if is_in_rotation else backup
    world.days(70)
    assert set(world.keyring.trusted).isdisjoint(backup.trusted) or is_in_rotation
    world.put("keyring", backup, ours=False)
    world.settled()
    world.healthy()
    assert world.keyring.active_ca == (backup.next_ca or backup.active_ca)
    for spec in world.specs:
        pair = world.current(spec.name).pair
        assert inventory.matches_spec(pair, spec, ca=world.keyring.active_ca, now=world.now), spec.name
    world.days(40)  # those of callers are copied by hand, so their old CA is trusted for 30 days
    assert len(world.keyring.trusted) == 1


def test_certificates_and_ca_are_renewed_after_two_thirds_of_their_validity():
    world = World()
    world.settled()
    first = world.keyring.active_ca
    world.done.clear()
    world.days(19)
    assert world.done == [], "a leaf of 30 days is left alone for two thirds of them"
    world.days(2)
    assert world.done == [rotation.Action.RENEW]
    world.days(1195, step=1)  # two thirds of 1825 days are 1217
    assert set(world.done) == {rotation.Action.RENEW}
    assert world.keyring.active_ca == first
    world.done.clear()
    world.days(65, step=1)
    order = [action for action in world.done if action is not rotation.Action.RENEW]
    prepare, publish, move, retire = (
        rotation.Action.PREPARE,
        rotation.Action.PUBLISH,
        rotation.Action.ACTIVATE,
        rotation.Action.PRUNE,
    )
    assert order == [prepare, publish, move, retire, publish]
    assert world.keyring.active_ca != first
    assert len(world.keyring.trusted) == 1
    world.healthy()


@pytest.mark.parametrize("is_changing_ca", [False, True])
def test_a_wait_of_a_minute_is_marked_as_soon_only_during_a_change_of_the_ca(is_changing_ca):
    """Otherwise a run without --watch would wait for a renewal that may be made days later."""
    world = World()
    world.settled()
    world.time += 20 * 86400 - 60
    if is_changing_ca:
        world.look(renew=True)
        world.look()  # writes the bundles
    wait = world.look()
    assert (wait.until - world.now).total_seconds() == pytest.approx(60)
    assert wait.soon == is_changing_ca


def test_the_next_ca_issues_before_the_old_one_expires_even_with_a_long_overlap():
    world = World(overlap=1000 * DAY)
    world.settled()
    first = world.keyring.active_ca
    world.days(1824)
    assert world.keyring.active_ca != first, "certificates of the first CA end with it"
    world.healthy()


@pytest.mark.parametrize("years", [-60, 6])
def test_a_clock_far_ahead_removes_no_ca_from_the_bundles(years):
    """The servers' clocks are right: they reject certificates that are not valid now, and present the current ones."""
    world = World()
    world.settled()
    old = world.keyring.trusted
    world.ahead = years * 366 * DAY
    world.settled()
    world.time += 600
    world.settled()
    assert all(set(old) <= set(pki.split_bundle(world.current(name))) for name in HOOKS)
    world.ahead = 0 * DAY
    world.settled()
    assert all(set(old) <= set(pki.split_bundle(world.current(name))) for name in HOOKS)
    world.healthy()


def present(world, issuer, anchor, chain=b""):
    """Install certificates of another issuer, with a chain, and bundles with an anchor."""
    for spec in SPECS:
        pair = pki.issue_certificate(
            issuer, common_name="x", hosts=spec.hosts, usages={spec.usage}, now=START, lifetime=DAY
        )
        chained = pki.KeyPair(pair.certificate_pem + chain, pair.key_pem)
        world.put(spec.name, rotation.StoredCertificate(chained, anchor))
    for name in HOOKS:
        world.put(name, anchor)
    world.time += 1000


def test_certificates_of_another_issuer_stay_trusted_until_they_are_replaced():
    """As with cert-manager: its serving certificate and CA stay trusted until ours have replaced them."""
    world = World()
    theirs = pki.issue_ca("theirs", now=START, lifetime=90 * DAY)
    present(world, theirs, theirs.certificate_pem)
    world.settled()
    world.healthy()
    assert theirs.certificate_pem in world.keyring.trusted
    world.days(61)
    assert theirs.certificate_pem not in world.keyring.trusted


def authority(key, signer: tuple | None = None, *, identified: bool = True) -> pki.KeyPair:
    """Return another writer's CA: of any key, signed by itself or by (certificate, key)."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"theirs {key.public_key()}"[:60])])
    built = x509.CertificateBuilder(
        issuer_name=signer[0].subject if signer else name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=START - DAY,
        not_valid_after=START + 3000 * DAY,
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if identified:
        built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = built.sign(signer[1] if signer else key, algorithm).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pki.KeyPair(made, key.private_bytes(*form))


def test_certificates_of_an_intermediate_ca_are_replaced_without_failed_handshakes():
    """As with Vault: the serving certificate has its intermediate CA, and the bundles have only the root."""
    world = World()
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = authority(root_key)
    between = authority(key, (x509.load_pem_x509_certificate(root.certificate_pem), root_key))
    present(world, between, root.certificate_pem, chain=between.certificate_pem)
    for _ in range(10):
        world.look()
        assert all(root.certificate_pem in pki.split_bundle(world.current(name)) for name in HOOKS)
    world.settled()
    world.healthy()


@pytest.mark.parametrize(("kind", "identified"), [("rsa", True), ("ec", True), ("ec", False), ("ed25519", True)])
def test_a_ca_of_the_operator_is_used_if_it_can_sign(kind, identified):
    make = {
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "ec": lambda: ec.generate_private_key(ec.SECP384R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate,
    }
    theirs = authority(make[kind](), identified=identified)
    world = World()
    world.put(
        "keyring", rotation.Keyring(active_ca=theirs, trusted=pki.split_bundle(theirs.certificate_pem)), ours=False
    )
    world.settled()
    world.healthy()
    assert (world.keyring.active_ca == theirs) == (kind == "ec" and identified)


def test_the_key_of_a_ca_that_no_longer_signs_is_deleted():
    world = World()
    world.settled()
    world.look(renew=True)
    old = world.keyring.active_ca.key_pem
    world.days(31)
    assert old not in (world.keyring.active_ca.key_pem, getattr(world.keyring.next_ca, "key_pem", b""))
