"""The server's own certificate and key, read once at start."""

from __future__ import annotations

import ssl
from pathlib import Path

from tenuto.errors import ConfigError


def load_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What encrypts connections, TLS 1.2 or newer; None: nothing was given.

    Args:
        certificate: PEM, the server's own first, then those between it and its root.
        key: PEM, without a password.

    Raises ConfigError naming the file and what is wrong with it.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("TLS needs both: --tls-cert CERTIFICATE --tls-key KEY")
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{option} {path}: cannot be read: {error.strerror or error}") from error
        if b"-----BEGIN " not in text:
            raise ConfigError(f"{option} {path}: not in PEM form; convert it, e.g. with openssl")
        if b"-----BEGIN ENCRYPTED" in text or b"Proc-Type: 4,ENCRYPTED" in text:
            raise ConfigError(f"{option} {path}: protected by a password; write it without, readable by you only")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"--tls-key {key}: not the key of the certificate {certificate}") from error
        reason = (error.reason or "not understood").replace("_", " ").lower()
        raise ConfigError(f"--tls-cert {certificate} with --tls-key {key}: {reason}") from error
    return context


def _no_password() -> str:
    """Instead of asking at the terminal, where a server has none."""
    raise ConfigError("--tls-key: protected by a password; write it without, readable by you only")
