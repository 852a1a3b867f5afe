"""Each keyword of JSON Schema is held exactly or refused by name and place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grammar_driver import drive

from embedded_tokenizer import embedded_tokenizer
from tenuto.errors import GrammarError
from tenuto.protocol.grammar import GrammarSpec
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.json_schema import normalise
from tenuto.text.json_schema_formats import FORMATS
from tenuto.text.json_schema_keywords import KEYWORDS


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def admits(compiler: LLGuidanceCompiler, schema: Any, text: str) -> bool:
    driven = drive(compiler, GrammarSpec(kind="json_schema", source=json.dumps(schema)), text)
    return driven is not None and driven.may_end


def obj(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


INT, STR = {"type": "integer"}, {"type": "string"}
NODE = obj(
    properties={"v": INT, "k": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    required=["v"],
    additionalProperties=False,
)
TREE = {"$defs": {"n": NODE}, "$ref": "#/$defs/n"}
HELD: dict[str, tuple[Any, list[str], list[str]]] = {
    "$defs": ({"$ref": "#/$defs/a", "$defs": {"a": {"enum": ["x", "你"]}}}, ['"x"', '"你"'], ['"z"', "1", "{}"]),
    "definitions": ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": INT}}, ["1"], ['"z"']),
    "$ref": (TREE, ['{"v": 1, "k": [{"v": 2, "k": []}]}'], ['{"v": 1, "k": [{}]}', '{"k": []}']),
    "type": ({"type": ["string", "null"]}, ["null", '"a"'], ["1", "[]"]),
    "enum": ({"enum": [1, "二", None, [1], {"a": 2}]}, ["1", '"二"', "null", "[1]", '{"a": 2}'], ["2", "true"]),
    "const": ({"const": {"b": 1, "a": 'q"\n'}}, ['{"b": 1, "a": "q\\"\\n"}'], ['{"b": 1}', '{"a": 1, "b": 1}']),
    "allOf": ({"allOf": [obj(properties={"a": INT}, required=["a"]), obj(properties={"b": STR}, required=["b"])]},
              ['{"a": 1, "b": "x"}'], ['{"a": 1}', '{"b": "x"}']),
    "anyOf": ({"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "^x"}]}, ['"x"', '"abc"'], ['"ab"', "1"]),
    "oneOf": ({"oneOf": [STR, INT]}, ["1", '"a"'], ["null"]),
    "minLength": ({**STR, "minLength": 2}, ['"你好"', '"\\n\\n"'], ['"a"', '"😀"']),
    "maxLength": ({**STR, "maxLength": 1}, ['"😀"', '"\\n"', '""'], ['"ab"']),
    "pattern": ({**STR, "pattern": r"\d|^b$", "maxLength": 3}, ['"x1y"', '"b"'], ['"bb"', '"xy"', '"x1yz"', '"٣"']),
    "format": ({**STR, "format": "date"}, ['"2024-02-29"', '"2000-02-29"'], ['"2023-02-29"', '"1900-02-29"']),
    "minimum": ({"type": "number", "minimum": 1.5}, ["1.5", "2", "10.25"], ["1.4", "-2", "0"]),
    "maximum": ({**INT, "maximum": 10}, ["10", "-999"], ["11", "100"]),
    "exclusiveMinimum": ({**INT, "exclusiveMinimum": 3}, ["4", "30"], ["3", "-4"]),
    "exclusiveMaximum": ({"type": "number", "exclusiveMaximum": 0.5}, ["0.49", "-7"], ["0.5", "0.51"]),
    "multipleOf": ({"type": "number", "multipleOf": 0.1}, ["0.3", "7"], ["0.35"]),
    "items": ({"type": "array", "items": INT}, ["[]", "[1, 2]"], ['["a"]', "[1, null]"]),
    "prefixItems": ({"type": "array", "prefixItems": [STR, INT]}, ['["a"]', '["a", 1, null]'], ["[1]", '["a", "b"]']),
    "additionalItems": ({"type": "array", "items": [STR], "additionalItems": INT}, ['["a", 1]'], ['["a", "b"]', "[1]"]),
    "minItems": ({"type": "array", "minItems": 2, "maxItems": 2}, ["[1, 2]"], ["[1]", "[1, 2, 3]", "[]"]),
    "maxItems": ({"type": "array", "maxItems": 1}, ["[]", "[1]"], ["[1, 2]"]),
    "uniqueItems": ({"type": "array", "uniqueItems": True, "maxItems": 1}, ["[]", "[1]"], ["[1, 1]"]),
    "properties": (obj(properties={"a": INT, "b": STR}), ['{"a": 1}', '{"b": "x", "c": null}'],
                   ['{"a": "x"}', '{"\\u0061": "x"}', '{"c": null, "a": 1}']),
    "required": (obj(properties={"a": INT}, required=["a", "z"]), ['{"a": 1, "z": null}'],
                 ["{}", '{"a": 1}', '{"z": 1}']),
    "additionalProperties": (obj(properties={"a": STR}, additionalProperties=INT), ['{"a": "x", "b": 1}'],
                             ['{"b": "x"}', '{"a": 1}']),
    "patternProperties": (obj(patternProperties={"^x_": INT}, additionalProperties=False), ['{"x_1": 1}'],
                          ['{"y": 1}', '{"x_1": "s"}', '{"ax_": 1}']),
    "propertyNames": (obj(propertyNames={"enum": ["甲", "乙"]}, additionalProperties=INT), ['{"乙": 1}', "{}"],
                      ['{"丙": 1}', '{"甲": "x"}']),
    "minProperties": (obj(minProperties=1), ['{"a": 1}'], ["{}"]),
    "maxProperties": (obj(maxProperties=1), ["{}", '{"a": 1}'], ['{"a": 1, "b": 1}']),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, known in KEYWORDS.items() if known.treatment == "enforced"])
def test_an_enforced_keyword_admits_what_is_valid_and_nothing_else(compiler: LLGuidanceCompiler, name: str) -> None:
    schema, valid, invalid = HELD[name]
    assert name in json.dumps(schema)
    for text in valid:
        assert admits(compiler, schema, text), text
    for text in invalid:
        assert not admits(compiler, schema, text), text


@pytest.mark.parametrize("name", [name for name, known in KEYWORDS.items() if known.treatment == "refused"])
def test_a_refused_keyword_is_named_with_its_place(compiler: LLGuidanceCompiler, name: str) -> None:
    schema = obj(properties={"a": {"type": "array", "items": {name: {}}}})
    with pytest.raises(
        GrammarError, match=rf"#/properties/a/items/{name.replace('$', '.')}: keyword `.*` is not supported"
    ):
        compiler.compile(GrammarSpec(kind="json_schema", source=json.dumps(schema)))


@pytest.mark.parametrize("name", [name for name, known in KEYWORDS.items() if known.treatment == "annotation"])
def test_an_annotation_changes_nothing(name: str) -> None:
    assert normalise({**INT, name: "x"}) == normalise(INT)


DRAFT = """$schema $id $anchor $dynamicAnchor $ref $dynamicRef $defs $comment $vocabulary prefixItems items contains
additionalProperties properties patternProperties dependentSchemas propertyNames if then else allOf anyOf oneOf not
unevaluatedItems unevaluatedProperties type const enum multipleOf maximum exclusiveMaximum minimum exclusiveMinimum
maxLength minLength pattern maxItems minItems uniqueItems maxContains minContains maxProperties minProperties required
dependentRequired title description default deprecated readOnly writeOnly examples format contentEncoding
contentMediaType contentSchema definitions dependencies additionalItems $recursiveRef $recursiveAnchor"""


def test_every_keyword_of_the_draft_has_its_place_in_the_table() -> None:
    assert set(DRAFT.split()) <= KEYWORDS.keys()
    with pytest.raises(GrammarError, match="#/nonsense: keyword `nonsense` is not supported"):
        normalise({"nonsense": 1})
    assert normalise({"x-anything": 1}).schema == {}


FAULTS = [
    ({"properties": {"a": "b"}}, "#/properties/a: a schema is an object, true or false, not a string"),
    ({"type": "nonsense"}, "#/type: "),
    ({"type": "object", "required": "a"}, "#/required: "),
    ({"enum": []}, "#/enum: "),
    ({"const": "\u0001"}, r"#/const: the character U\+0001"),
    ({"enum": [1, 2**60]}, "#/enum/1: numbers beyond"),
    ({"minimum": "1"}, "#/minimum: a number is needed"),
    ({"exclusiveMinimum": True}, "#/exclusiveMinimum: a number"),
    ({"minLength": -1}, "#/minLength: a whole number"),
    ({"multipleOf": 0}, "#/multipleOf: a number above 0"),
    ({"multipleOf": 0.12345}, "#/multipleOf: "),
    ({"pattern": "(?=a)b"}, "#/pattern: the regular expression, at character 0: look-ahead"),
    ({"pattern": "a$b"}, r"anchor \$ at character 1"),
    ({"patternProperties": {"(": {}}}, r"#/patternProperties/\(: .* not closed"),
    ({"format": "no-such"}, "#/format: format 'no-such' is not supported; these are: date"),
    ({"$ref": "#/$defs/no"}, r"#/\$ref: `\$ref` points to #/\$defs/no"),
    ({"$ref": "https://elsewhere/x"}, r"#/\$ref: .* within the schema only"),
    ({"$ref": "#name"}, "anchor"),
    ({"$ref": "#"}, "#: it refers to itself"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [STR, {"$ref": "#/$defs/a"}]}}},
        r"#/\$defs/a: it refers to itself",
    ),
    (obj(properties={"a": {"$ref": "#"}}, required=["a"]), "no finite value"),
    ({"oneOf": [{"type": "number"}, INT]}, "#/oneOf: options 0 and 1"),
    ({"allOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, "two values of multipleOf"),
    ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, "#/properties/a/uniqueItems"),
    (obj(minProperties=2), "#/minProperties"),
    (obj(properties={"a": INT, "b": INT}, maxProperties=1, required=["a"]), "schema at #: .*maxProperties"),
    (
        obj(properties={"p": {"type": "string", "minLength": 3, "maxLength": 2}}, required=["p"]),
        "#/properties/p: .*minLength",
    ),
    ({"properties": {"a": {"$id": "x"}}}, r"#/properties/a/\$id"),
    ({"properties": {"a": {"type": "string", "x-tenuto-copied": True}}}, "#/properties/a/x-tenuto-copied"),
]


@pytest.mark.parametrize(("schema", "message"), FAULTS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_held_is_refused_with_place_and_reason(
    compiler: LLGuidanceCompiler, schema: Any, message: str
) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.compile(GrammarSpec(kind="json_schema", source=json.dumps(schema)))


def test_one_of_is_held_where_options_exclude_one_another(compiler: LLGuidanceCompiler) -> None:
    def pet(kind: str, **more: Any) -> dict[str, Any]:
        return obj(properties={"kind": {"const": kind}, **more}, required=["kind"], additionalProperties=False)

    schema = {"oneOf": [{"$ref": "#/$defs/cat"}, pet("狗", age=INT)], "$defs": {"cat": pet("cat", lives=INT)}}
    assert admits(compiler, schema, '{"kind": "cat", "lives": 9}') and admits(
        compiler, schema, '{"kind": "狗", "age": 3}'
    )
    assert not admits(compiler, schema, '{"kind": "cat", "age": 3}')
    recursive = {"oneOf": [INT, {"type": "array", "items": {"$ref": "#"}}]}
    assert admits(compiler, recursive, "[1, [2, []]]")


def test_a_branch_without_an_end_is_never_entered(compiler: LLGuidanceCompiler) -> None:
    endless = obj(properties={"next": {"$ref": "#/$defs/e"}}, required=["next"])
    schema = obj(
        properties={"a": {"$ref": "#/$defs/e"}, "b": INT}, additionalProperties=False, **{"$defs": {"e": endless}}
    )
    assert admits(compiler, schema, '{"b": 1}') and not admits(compiler, schema, '{"a": {}}')
    assert drive(compiler, GrammarSpec(kind="json_schema", source=json.dumps(schema)), '{"a": {"next": ') is None


def test_where_it_is_not_strict_only_the_odd_keyword_is_left_out() -> None:
    schema = obj(properties={"a": {**STR, "pattern": "(?=x)", "maxLength": 3}, "b": {"not": INT}}, required=["a"])
    normal = normalise(schema, strict=False)
    assert normal.schema == obj(properties={"a": {**STR, "maxLength": 3}, "b": {}}, required=["a"])
    assert [r.path for r in normal.relaxed] == ["#/properties/a/pattern", "#/properties/b/not"]
    odd_names = obj(patternProperties={"(?=x)": INT}, additionalProperties=False)
    assert normalise(odd_names, strict=False).schema == {"type": "object"}, "more may pass, never less"


def test_the_normal_form_is_its_own() -> None:
    """Tools' grammars carry schemas in normal form, and are looked over again."""
    formats = {name: {**STR, "format": name, "pattern": "a|^b"} for name in FORMATS}
    schema = {**TREE, **obj(properties=formats, patternProperties={"^x": INT})}
    once = normalise(schema).schema
    assert normalise(once).schema == once


WHITE = ['{"a": 1,"b": 2}', '{"a" : 1}', '{ "a": 1}', '{"a": 1 }', '{"a":1}', '{\n"a": 1}', '{"a": 1}\n', ' {"a": 1}']


@pytest.mark.parametrize("schema", [{"type": "object"}, obj(properties={"a": INT}), {}])
def test_white_space_is_fixed(compiler: LLGuidanceCompiler, schema: Any) -> None:
    """B44: a model that likes line breaks finds none to write, in json_object mode either."""
    assert admits(compiler, schema, '{"a": 1, "b": [1, {"c": "北京"}]}')
    assert not any(admits(compiler, schema, text) for text in WHITE)


def test_a_wide_object_can_be_followed(compiler: LLGuidanceCompiler) -> None:
    wide = obj(properties={f"p{i}": STR for i in range(1_000)}, additionalProperties=False)
    assert admits(compiler, wide, '{"p7": "七", "p999": ""}') and not admits(compiler, wide, '{"p9": "", "p7": ""}')


def test_the_documentation_lists_every_keyword_and_format() -> None:
    page = (Path(__file__).parents[3] / "docs/grammars.md").read_text(encoding="utf-8")
    for name, known in KEYWORDS.items():
        assert f"| `{name}` | {known.treatment} | {known.note} |" in page, name
    for name, form in FORMATS.items():
        assert f"| `{name}` | {form.source} | {form.note} |" in page, name
