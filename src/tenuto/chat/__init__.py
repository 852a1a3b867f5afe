"""The one owner of messages <-> tokens: renders, splices, constrains, reads replies."""

from tenuto.chat.completion import LocalCompletionClient
from tenuto.chat.local import ChatLimits, LocalModelClient, TextTools
from tenuto.chat.sessions import LocalSessionClient
from tenuto.chat.spent import OnBrokenOff, nobody

__all__ = [
    "ChatLimits",
    "LocalCompletionClient",
    "LocalModelClient",
    "LocalSessionClient",
    "OnBrokenOff",
    "TextTools",
    "nobody",
]
