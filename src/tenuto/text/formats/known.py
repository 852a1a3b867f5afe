"""The tool-call formats that we know, one description each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tenuto.text.formats.call_object import CallObject
from tenuto.text.formats.json_text import dumps
from tenuto.text.formats.markers import (
    ARGS,
    CALL_BEGIN,
    CALL_END,
    CALLS_BEGIN,
    CALLS_END,
    HERMES_CLOSE,
    HERMES_OPEN,
    PYTHON_END,
    PYTHON_START,
    PYTHON_TAG,
    SEP,
    TOOL_CALLS,
)
from tenuto.text.formats.named_call import NamedCall
from tenuto.text.formats.python_call import PythonCall
from tenuto.text.formats.python_wording import PythonWording
from tenuto.text.formats.reader import After, Behind, CallReader, DeclaredTools, LeadIn
from tenuto.text.formats.stream import CallSyntax
from tenuto.text.formats.wording import JsonWording, Wording
from tenuto.text.formats.xml_call import FUNCTION, XmlCall
from tenuto.text.formats.xml_wording import XmlWording

ANYWHERE = "(?s:.*)"
AT_LINE_START = r"((?s:.*)\n)?"


@dataclass(frozen=True)
class CallFormat:
    """How one family of models writes tool calls."""

    name: str
    syntax: CallSyntax  # how they are read
    wording: Wording  # how they are written
    prose: str = ANYWHERE  # for grammars, a regular expression: what may stand before the first call
    no_prose: str = ""  # a regular expression: prose does not begin with this


def _only(first: str, reader: CallReader) -> CallReader:
    """The reader, if what comes begins with this character."""
    return LeadIn(lambda character: reader if character == first else None)


def _accepts(tools: DeclaredTools) -> Callable[[str], bool] | None:
    return None if tools is None else lambda name: name in tools


# Hermes: Qwen 2.5 and 3, Hermes, and our own way for models that know none.


_OTHER_TAG = r"\s*<tool_(?s:.*)"  # such as a made-up tool's answer, which small models write


def _hermes(opening: str, tools: DeclaredTools) -> CallReader:
    return _only("{", CallObject(After(closers=(HERMES_CLOSE,))))


HERMES = CallFormat(
    name="hermes",
    syntax=CallSyntax((HERMES_OPEN,), _hermes),
    wording=JsonWording(
        first=HERMES_OPEN,
        head=lambda name: f'{{"name": {dumps(name)}, "arguments": ',
        tail="}" + HERMES_CLOSE,
        between="\n" + HERMES_OPEN,
    ),
    no_prose=_OTHER_TAG,
)


# XML: Qwen3-Coder and models after it.


def _xml(opening: str, tools: DeclaredTools) -> CallReader:
    call = XmlCall(After(closers=(HERMES_CLOSE,), separators=(FUNCTION,)), tools)
    return call if opening == FUNCTION else Behind(FUNCTION, call)


XML = CallFormat(
    name="xml",
    syntax=CallSyntax((HERMES_OPEN, FUNCTION), _xml),
    wording=XmlWording(),
    no_prose=_OTHER_TAG,
)


# Llama 3: an object where a line begins, or after a token of its own.


def _llama(opening: str, tools: DeclaredTools) -> CallReader:
    return _only("{", CallObject(After(separators=(";",)), None if opening == PYTHON_TAG else _known(tools)))


def _json(opening: str, tools: DeclaredTools) -> CallReader:
    return CallObject(After(), _known(tools))


def _known(tools: DeclaredTools) -> Callable[[str], bool]:
    return _accepts(tools) or (lambda name: True)


LLAMA = CallFormat(
    name="llama",
    syntax=CallSyntax((PYTHON_TAG,), _llama, bare="{"),
    wording=JsonWording(
        first='{"name": ', head=lambda name: f'{dumps(name)}, "parameters": ', tail="}", between='; {"name": '
    ),
    prose=rf"((?s:.*)(\n|{re.escape(PYTHON_TAG)}))?",
)

JSON = CallFormat(
    name="json",
    syntax=CallSyntax((), _json, bare="{"),
    wording=JsonWording(
        first='{"name": ', head=lambda name: f'{dumps(name)}, "arguments": ', tail="}", between='\n{"name": '
    ),
    prose=AT_LINE_START,
)


# Python: Llama 3.2 and 4, and others that were taught to write lists of calls.


def _python(opening: str, tools: DeclaredTools) -> CallReader:
    after = After(separators=(",",), closers=("]", PYTHON_END))
    is_bare = opening not in (PYTHON_START, PYTHON_TAG)
    return PythonCall(after, in_list=opening == ",", accepts=_known(tools) if is_bare else None)


PYTHONIC = CallFormat(
    name="pythonic",
    syntax=CallSyntax((PYTHON_START, PYTHON_TAG), _python, bare="["),
    wording=PythonWording(),
    prose=rf"((?s:.*)(\n|{re.escape(PYTHON_TAG)}|{re.escape(PYTHON_START)}))?",
)


# Mistral: a list of objects at first, later a name and an object for each call. Both are read, one is written.

_PLAIN_NAME = re.compile(r"[^\s\[\]{}\"<>｜]{1,250}")
_MISTRAL_HEAD = re.compile(
    rf"\s*(?P<name>{_PLAIN_NAME.pattern})\s*(\[CALL_ID\]\s*[^\s\[\]{{}}]{{1,64}}\s*)?(\[ARGS\])?\s*"
)


def _mistral(opening: str, tools: DeclaredTools) -> CallReader:
    listed = CallObject(After(closers=("]",), separators=(",",)))
    if opening == ",":
        return _only("{", listed)

    def choose(character: str) -> CallReader:
        match character:
            case "[":
                return Behind("[", _only("{", listed))
            case "{":
                return CallObject(After())
            case _:
                return NamedCall((_MISTRAL_HEAD,), After())

    return LeadIn(choose)


_MISTRAL_SYNTAX = CallSyntax((TOOL_CALLS,), _mistral)

MISTRAL = CallFormat(
    name="mistral",
    syntax=_MISTRAL_SYNTAX,
    wording=JsonWording(
        first=f"{TOOL_CALLS} [",
        head=lambda name: f'{{"name": {dumps(name)}, "arguments": ',
        tail="}",
        between=", ",
        last="]",
    ),
)

MISTRAL_ARGS = CallFormat(
    name="mistral-args",
    syntax=_MISTRAL_SYNTAX,
    wording=JsonWording(first=TOOL_CALLS, head=lambda name: f"{name}{ARGS}", between=TOOL_CALLS, names=_PLAIN_NAME),
)


# DeepSeek: V3 and R1 put the object into a code block, V3.1 right behind the name. Both are read, one is written.

_DEEPSEEK_HEADS = (
    re.compile(rf"\s*(?P<name>{_PLAIN_NAME.pattern})\s*{SEP}\s*"),
    re.compile(rf"\s*\w+\s*{SEP}\s*(?P<name>{_PLAIN_NAME.pattern})\s*```(?:json)?\s*"),
)


def _deepseek(opening: str, tools: DeclaredTools) -> CallReader:
    call = NamedCall(_DEEPSEEK_HEADS, After(closers=("```", CALL_END, CALLS_END)))
    return call if opening == CALL_BEGIN else Behind(CALL_BEGIN, call)


_DEEPSEEK_SYNTAX = CallSyntax((CALLS_BEGIN, CALL_BEGIN), _deepseek)

DEEPSEEK = CallFormat(
    name="deepseek",
    syntax=_DEEPSEEK_SYNTAX,
    wording=JsonWording(
        first=CALLS_BEGIN + CALL_BEGIN,
        head=lambda name: f"function{SEP}{name}\n```json\n",
        tail=f"\n```{CALL_END}",
        between=f"\n{CALL_BEGIN}",
        last=CALLS_END,
        names=_PLAIN_NAME,
    ),
)

DEEPSEEK_V31 = CallFormat(
    name="deepseek-v3.1",
    syntax=_DEEPSEEK_SYNTAX,
    wording=JsonWording(
        first=CALLS_BEGIN + CALL_BEGIN,
        head=lambda name: f"{name}{SEP}",
        tail=CALL_END,
        between=CALL_BEGIN,
        last=CALLS_END,
        names=_PLAIN_NAME,
    ),
)

FORMATS = {one.name: one for one in (HERMES, XML, LLAMA, PYTHONIC, MISTRAL, MISTRAL_ARGS, DEEPSEEK, DEEPSEEK_V31, JSON)}
