"""What the routes share: the model, its names, and the sources of time and ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenuto.clock import Clock
from tenuto.errors import UnknownModel
from tenuto.ids import IdSource
from tenuto.protocol.chat import ModelClient
from tenuto.protocol.completion import CompletionClient
from tenuto.protocol.embedding import EmbeddingClient, RerankClient
from tenuto.protocol.engine import EngineClient
from tenuto.protocol.release import ReleaseClient
from tenuto.protocol.sessions import SessionClient
from tenuto.server.limits import ServerLimits

if TYPE_CHECKING:
    from tenuto.server.sessions import SessionDirectory

DEFAULT_NAME = "default"


@dataclass(frozen=True)
class OtherClients:
    """What stands beside the `ModelClient`; of what is None the routes say that it is not served."""

    engine: EngineClient | None = None
    completion: CompletionClient | None = None
    embedder: EmbeddingClient | None = None
    reranker: RerankClient | None = None
    sessions: SessionClient | None = None
    releases: ReleaseClient | None = None  # of KV, for hints


@dataclass(frozen=True)
class Service:
    """Handed to every router."""

    model: ModelClient
    others: OtherClients
    served_names: tuple[str, ...]  # the first is the real one
    clock: Clock
    ids: IdSource
    limits: ServerLimits
    sessions: SessionDirectory
    created: int  # Unix seconds

    def __post_init__(self) -> None:
        assert self.served_names and all(self.served_names), "a model is served under at least one name"

    @property
    def name(self) -> str:
        """The model's real name, which answers carry whatever alias was asked for."""
        return self.served_names[0]

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """Every name a request may use, each once, the real one first."""
        return tuple(dict.fromkeys((*self.served_names, DEFAULT_NAME)))

    def check_name(self, name: str) -> None:
        """Raises UnknownModel, naming what is served."""
        self.check_name_of(name, self.name)

    def check_name_of(self, name: str, model: str) -> None:
        """Whether a request may mean this model by that name: by any of its own, or by `default`.

        Raises UnknownModel, naming what is served on the route.
        """
        accepted = self.accepted_names if model == self.name else (model, DEFAULT_NAME)
        if name not in accepted:
            raise UnknownModel(f"no model {name[:100]!r} is served here; served: {', '.join(accepted)}")
