"""What a caller still waits for: one mailbox a call."""

from __future__ import annotations

from typing import TypeAlias

from tenuto.engine.boundary.messages import Answer, Credit, Piece
from tenuto.engine.mailbox import Mailbox
from tenuto.errors import TenutoError
from tenuto.protocol.engine import TokenDelta

News: TypeAlias = TokenDelta | Piece | Credit | Answer | TenutoError

_LAST = (Answer, TenutoError)


class Call:
    """What arrives for one call, in order; the last thing is an `Answer` or an error.

    Attributes:
        frees: sets something free. Once asked for it happens, whoever waits for the answer: a client often goes at the
            very moment at which its session is closed.
        is_sent: the host knows of it.
        has_ended: the last thing has arrived, so there is nothing to cancel.
    """

    def __init__(self, number: int, max_news: int, *, frees: bool = False) -> None:
        self.number = number
        self.frees = frees
        self.is_sent = False
        self.has_ended = False
        self._max_news = max_news
        self._news: Mailbox[News] = Mailbox()

    def push(self, news: News) -> bool:
        """False if more has arrived than was ever asked for."""
        if self.has_ended:
            return True
        self.has_ended = isinstance(news, _LAST)
        self._news.put(news)
        return len(self._news) <= self._max_news

    @property
    def has_news(self) -> bool:
        return len(self._news) > 0

    async def take(self) -> TokenDelta | Piece | Credit | Answer:
        """The next thing; raises the error that ends the call."""
        news = await self._news.take()
        if isinstance(news, TenutoError):
            raise news
        return news
