"""Hints in the dialects that agents' clients speak, translated into our own words: whose request it is, and which KV
will not be wanted again. Best effort; docs/hints.md lists them.
"""

from tenuto.server.hints.agent_hint import EditedReply, EditedWriter, no_reply
from tenuto.server.hints.edits import apply_edits, edits_of
from tenuto.server.hints.run_hints import run_hints
from tenuto.server.hints.wire import AgentHintBody, manages

__all__ = [
    "AgentHintBody",
    "EditedReply",
    "EditedWriter",
    "apply_edits",
    "edits_of",
    "manages",
    "no_reply",
    "run_hints",
]
