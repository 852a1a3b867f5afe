"""An address to listen on, taken before anything that lasts is begun."""

from __future__ import annotations

import os
import socket

from tenuto.errors import ConfigError


class BoundAddress:
    """Nobody else can listen there while it is bound, and nobody is answered there yet: who connects is refused.

    Attributes:
        host: as given.
        port: the one that was taken.
        socket: TCP, bound.
    """

    def __init__(self, host: str, port: int) -> None:
        """
        Args:
            port: 0 takes a free one.

        Raises ConfigError if the address cannot be had.
        """
        self.host = host
        self.port = port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Named as TCP: only then does asyncio switch Nagle's algorithm off for the connections, which would hold each
        # small piece of an answer back until the client has confirmed the one before, by 40 ms or more.
        self.socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if os.name == "posix":  # connections of a server that ended a moment ago do not count
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.socket.bind((host, port))
        except OSError as error:
            self.close()
            raise self.refused(error) from error
        self.port = self.socket.getsockname()[1]

    def refused(self, error: OSError) -> ConfigError:
        """What to tell of an address that the system does not let us have."""
        reason = error.strerror or str(error)
        return ConfigError(
            f"cannot listen on {self.host} port {self.port}: {reason}; choose another with --host and --port"
        )

    def close(self) -> None:
        """Give it up; once more is no error."""
        self.socket.close()
