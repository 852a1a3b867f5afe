"""Bodies of `/v1/sessions` → the protocol's values; raise InvalidRequest naming the field."""

from __future__ import annotations

from tenuto.errors import InvalidRequest
from tenuto.ids import RequestId, RunId, TokenId
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import RunHints
from tenuto.protocol.sessions import SessionGenerate, SessionInput, SessionText
from tenuto.server.limits import ServerLimits
from tenuto.server.sampling_fields import sampling_of, stops_of
from tenuto.server.sessions.wire import InputFields, RunFields, SessionGenerateBody

_MAX_ID = 2**31 - 1


def hints_of(body: RunFields, tenant: str, default: RunHints = RunHints()) -> RunHints:
    """
    Args:
        default: the session's own, for what the body leaves out.
    """
    return RunHints(
        run=default.run if body.run is None else RunId(body.run),
        parent=default.parent if body.parent_run is None else RunId(body.parent_run),
        priority=default.priority if body.priority is None else body.priority,
        tenant=tenant,
    )


def input_of(body: InputFields, *, required: bool) -> SessionInput:
    if body.token_ids is not None and body.text is not None:
        raise InvalidRequest("token_ids and text are both given; send one of them", "text")
    if body.control and body.text is None:
        raise InvalidRequest("control: only with text", "control")
    if body.text:
        return SessionText(text=body.text, control=bool(body.control))
    if not body.token_ids and required:
        raise InvalidRequest("nothing to append: send token_ids or text", "token_ids")
    return _ids(body.token_ids or [], "token_ids")


def generate_of(
    body: SessionGenerateBody, request_id: RequestId, hints: RunHints, limits: ServerLimits
) -> SessionGenerate:
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("top_logprobs: only with logprobs", "top_logprobs")
    return SessionGenerate(
        input=input_of(body, required=False),
        max_tokens=limits.output_tokens(body.max_tokens),
        sampling=sampling_of(body, request_id),
        stop=stops_of(body),
        stop_ids=frozenset(_ids(body.stop_token_ids or [], "stop_token_ids")),
        ignore_eos=bool(body.ignore_eos),
        grammar=_grammar(body),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        hints=hints,
    )


def _grammar(body: SessionGenerateBody) -> GrammarSpec | None:
    asked = body.response_format
    if body.grammar is not None:
        if asked is not None and asked.type != "text":
            raise InvalidRequest("grammar and response_format are both given; send one of them", "grammar")
        return GrammarSpec(kind=body.grammar.kind, source=body.grammar.source)
    return None if asked is None else asked.grammar()


def _ids(values: list[int], param: str) -> tuple[TokenId, ...]:
    for index, value in enumerate(values):
        if not 0 <= value <= _MAX_ID:
            raise InvalidRequest(f"{param}[{index}]: {value} is no token id", f"{param}[{index}]")
    return tuple(map(TokenId, values))
