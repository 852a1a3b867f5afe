"""Calls written as elements, see `xml_call`: rules and text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import GrammarError
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.text.copied import CopyRule
from tenuto.text.formats.json_text import dumps
from tenuto.text.formats.parameters import properties_of, required_of, resolved, types_of
from tenuto.text.formats.wording import CallRule, check_name
from tenuto.text.formats.xml_call import END_FUNCTION, END_PARAMETER, FUNCTION, PARAMETER
from tenuto.text.json_schema_formats import FORMATS
from tenuto.text.lark_text import literal
from tenuto.text.regex_syntax import partial_match
from tenuto.text.tool_grammar import ToolArguments, ToolGrammar

_NAMES = re.compile(r"[^<>\s]{1,250}")
_END = f"\n{END_PARAMETER}\n"
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
_KNOWN = frozenset({"type", "pattern", "minLength", "maxLength", "format"}) | _ANNOTATIONS


@dataclass(frozen=True)
class XmlWording:
    """One element for each parameter, in declared order. Strings stand as they are, other values as JSON."""

    first: str = "<tool_call>"
    between: str = "\n<tool_call>"
    last: str = ""

    @property
    def usage(self) -> str:
        return f"\n{FUNCTION}...>\n{PARAMETER}...>\n...{_END}{END_FUNCTION}\n</tool_call>"

    def call(self, rules: ToolGrammar, index: int, tool: ToolSpec) -> CallRule | None:
        check_name(tool.name, _NAMES)
        arguments = ToolArguments(rules, f"t{index}", tool)
        body: list[str] = []
        required = required_of(rules, tool)
        for key, schema in properties_of(tool).items():
            check_name(key, _NAMES)
            value = _Value(rules, arguments, tool, key, f"{index}_{len(body)}").body(schema)
            if value is None and key in required:
                return None
            if value is not None:
                element = arguments.rule(f"{literal(f'{PARAMETER}{key}>' + chr(10))} ({value})")
                body.append(element if key in required else f"{element}?")
        end = literal(f"{END_FUNCTION}\n</tool_call>")
        return CallRule(f"\n{FUNCTION}{tool.name}>\n", " ".join([*body, end]))

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        values = (
            f"{PARAMETER}{key}>\n{value if isinstance(value, str) else dumps(value)}{_END}"
            for key, value in arguments.items()
        )
        return f"\n{FUNCTION}{name}>\n{''.join(values)}{END_FUNCTION}\n</tool_call>"


class _Value:
    """The rules of one parameter's value and of the tag that ends it."""

    def __init__(self, rules: ToolGrammar, arguments: ToolArguments, tool: ToolSpec, key: str, number: str) -> None:
        self._rules = rules
        self._arguments = arguments
        self._tool = tool
        self._path = f"#/properties/{key}"
        self._number = number  # no other value of any tool has it

    def body(self, schema: Any) -> str | None:
        kinds = types_of(schema, self._tool.parameters)
        if "string" not in kinds:
            value = self._arguments.value(schema, self._path)
            return None if value is None else f"({value}) {literal(_END)}"
        found = resolved(schema, self._tool.parameters)
        schema = found if isinstance(found, dict) else {}
        if schema.get(COPIED):
            copy = self._rules.copy(CopyRule.from_schema(schema, self._path), quoted=False)
            return None if copy is None else f"{copy} {literal(_END)}"
        given = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(given, list) and given:
            written = [value if isinstance(value, str) else dumps(value) for value in given]
            fitting = [literal(text + _END) for text in written if END_PARAMETER not in text]
            return " | ".join(fitting) if fitting else None
        return self._text(schema, only_strings=kinds == {"string"})

    def _text(self, schema: Mapping[str, Any], only_strings: bool) -> str:
        """Free text up to the first closing tag, under what the schema asks of a string."""
        conditions: list[str] = []
        if only_strings:
            conditions = self._conditions(schema)
        elif not schema.keys() <= {"type"} | _ANNOTATIONS:
            self._rules.relax(self._tool, self._path, "where strings may stand, values are written without quotes")
        name = f"TEXT_{self._number}" if conditions else "TEXT"
        text = [r"/(?s:.*)/", rf"~/(?s:.*){re.escape(END_PARAMETER).replace('/', chr(92) + '/')}(?s:.*)/", *conditions]
        parts = [f"{name}_{index}" for index in range(len(text))]
        lazy = (f"{name.lower()}[lazy]", f"{name} {literal(_END)}")
        self._rules.share(name.lower(), [lazy, (name, " & ".join(parts)), *zip(parts, text, strict=True)])
        return name.lower()

    def _conditions(self, schema: Mapping[str, Any]) -> list[str]:
        found: list[str] = []
        others = sorted(schema.keys() - _KNOWN)
        if others:
            self._rules.relax(self._tool, self._path, f"keywords {', '.join(others)} are not held for bare strings")
        if isinstance(pattern := schema.get("pattern"), str):
            try:
                found.append(f"/{partial_match(pattern)}/")
            except GrammarError as error:
                self._rules.relax(self._tool, f"{self._path}/pattern", str(error))
        if (wanted := schema.get("format")) is not None:
            known = FORMATS.get(wanted) if isinstance(wanted, str) else None
            if known is None:
                self._rules.relax(self._tool, f"{self._path}/format", f"the format {wanted!r:.80} is not known")
            else:
                found.append(f"/{partial_match(f'^(?:{known.pattern})$')}/")
        least, most = schema.get("minLength", 0), schema.get("maxLength", "")
        if least or most != "":
            found.append(f"/(?s:.){{{least},{most}}}/")
        return found
