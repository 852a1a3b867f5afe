"""The one owner of messages <-> tokens: renders, splices, constrains, reads replies."""

from tenuto.chat.local import ChatLimits, LocalModelClient, TextTools

__all__ = ["ChatLimits", "LocalModelClient", "TextTools"]
