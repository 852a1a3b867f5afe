"""A grammar of any kind but Lark as the body of one Lark rule."""

from __future__ import annotations

import json
import re

from tenuto.errors import GrammarError, InvalidRequest
from tenuto.protocol.grammar import GrammarSpec
from tenuto.text.json_schema import normalise, parse_schema
from tenuto.text.lark_text import literal
from tenuto.text.regex_syntax import whole_match
from tenuto.text.tool_grammar import inline_schema

MAX_CHOICES = 10_000
MAX_CHOICE_CHARS = 100_000  # of one: text that is fixed is read through again at each step that meets it


def rule_body(spec: GrammarSpec) -> str:
    """
    Raises:
        GrammarError: the spec's source says something that no grammar can hold.
        InvalidRequest: it is Lark, whose rules have names of their own.
    """
    match spec.kind:
        case "json_schema":
            return inline_schema(normalise(parse_schema(spec.source)).schema)
        case "regex":
            return f"/{whole_match(spec.source)}/"
        case "choices":
            return " | ".join(map(literal, _choices(spec.source)))
        case "lark":
            raise InvalidRequest("a reply in a Lark grammar cannot be asked for together with tools", "response")


def _choices(source: str) -> list[str]:
    """The strings of which the text is exactly one. Raises GrammarError."""
    try:
        choices = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the choices are not JSON: {error}") from error
    if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
        raise GrammarError("the choices must be a list of at least one string, none of them empty")
    if len(choices) > MAX_CHOICES:
        raise GrammarError(f"there are {len(choices)} choices, more than {MAX_CHOICES}")
    for index, choice in enumerate(choices):
        if len(choice) > MAX_CHOICE_CHARS:
            raise GrammarError(f"choice {index} has {len(choice)} characters, more than {MAX_CHOICE_CHARS}")
        if re.search("[\ud800-\udfff]", choice):
            raise GrammarError(f"choice {index} holds half a surrogate pair, which is no character")
    return list(dict.fromkeys(choices))
