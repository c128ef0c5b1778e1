"""Certificates without key identifiers, as the authorities of some clusters (EKS) issue them."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW, DAY = dt.datetime.now(dt.UTC), dt.timedelta(days=1)


def make(name, issuer=None, *, authority=False, host="127.0.0.1", usage=x509.OID_SERVER_AUTH, until=NOW + DAY):
    """Return a certificate and its key. `issuer` is such a pair; without one it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    over, signer = (issuer[0].subject, issuer[1]) if issuer else (own, key)
    builder = x509.CertificateBuilder(over, own, key.public_key(), x509.random_serial_number(), NOW - 2 * DAY, until)
    uses = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    uses |= {"encipher_only": False, "decipher_only": False, "digital_signature": not authority}
    uses |= {"key_cert_sign": authority, "crl_sign": authority}
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    builder = builder.add_extension(x509.KeyUsage(**uses), critical=True)
    if not authority:
        is_address = host.replace(".", "").isdecimal()
        names = [x509.IPAddress(ipaddress.ip_address(host)) if is_address else x509.DNSName(host)]
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256()), key


def pem(*certificates):
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def key_pem(key):
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form)
