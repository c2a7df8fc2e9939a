"""A certificate authority for the length of a test, and contexts of both sides."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bascule.outbound.tls import tls_context

_BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_LONG = datetime.timedelta(days=36_500)


class Authority:
    """Signs certificates below a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(self._name, self._key, authority=True)
        self.ca = self._write(name, certificate, self._key)

    def issue(self, name: str, *hosts: str, days: datetime.timedelta = _LONG) -> str:
        """Return the file of a certificate, with its key, for these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, self._signed(_named(name), key, hosts=hosts, days=days), key)

    def serving(self, *hosts: str, expired: bool = False, clients: bool = False) -> ssl.SSLContext:
        """Return the context of a server with these names, which may ask clients for theirs."""
        days = datetime.timedelta(days=1) if expired else _LONG
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue("server", *(hosts or ("127.0.0.1",)), days=days))
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca)
        return context

    def trusting(self, certificate: str | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority and no other."""
        context = tls_context(self.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        hosts: tuple[str, ...] = (),
        days: datetime.timedelta = _LONG,
        authority: bool = False,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGIN)
            .not_valid_after(_BEGIN + days)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey):
        path = self._folder / f"{name}.pem"
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(text + certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> x509.GeneralName:
    if "://" in host:
        return x509.UniformResourceIdentifier(host)
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
