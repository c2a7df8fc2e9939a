"""The certificate of the gRPC port, read anew when its files change."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc

from bascule.asgi.serve import CannotServe, Tls

logger = logging.getLogger(__name__)


def credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return what the port's handshakes need; raise CannotServe for files that do not fit."""
    tls.context()  # it knows what is wrong with files, and says so
    files = _Files(tls)
    return grpc.dynamic_ssl_server_credentials(
        files.configuration(),
        files.changed,  # pyright: ignore[reportArgumentType] - None is no change, by its reference
        require_client_authentication=tls.client_ca is not None,
    )


class _Files:
    """PEM files, and how they were when they were read last."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._paths = [Path(one) for one in (tls.certificate, tls.key, tls.client_ca) if one]
        self._state: object = None

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Read the files."""
        self._state = self._stamps()
        certificate, key, *ca = (path.read_bytes() for path in self._paths)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], *ca)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what is new for the next handshake, if anything is; keep what does not fit out."""
        try:
            stamps = self._stamps()
            if stamps == self._state:
                return None
            self._state = stamps
            self._tls.context()
            return self.configuration()
        except (OSError, CannotServe) as error:
            logger.error("the certificate stays what it was: %s", error)  # noqa: TRY400 - as it says
            return None

    def _stamps(self) -> object:
        found = [path.stat() for path in self._paths]
        return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in found]
