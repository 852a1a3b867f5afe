"""What one client may ask of the server, so that no client can hurt another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on one request. Queues are bounded behind the `ModelClient`, which answers QueueFull."""

    max_body_bytes: int = 8 * 1024 * 1024  # larger: 413
    max_json_depth: int = 100  # objects and lists inside each other, in the body and in a call's arguments
    max_json_values: int = 100_000  # in all, members of objects and lists among them
    body_deadline_s: float = 30.0  # for the body to arrive: 408
    send_deadline_s: float = 60.0  # for one piece of the answer to be taken; a client that reads nothing is gone
    cancel_deadline_s: float = 5.0  # for the model's stream to end once its client is gone; past it, we log and go on
    retry_after_s: int = 1  # what a client is told when the queue is full
