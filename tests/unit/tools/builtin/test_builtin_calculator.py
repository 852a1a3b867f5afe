from __future__ import annotations

import pytest

from tenuto.errors import InvalidArguments
from tenuto.text import copied
from tenuto.tools.builtin.calculator import EXPRESSION_PATTERN, calculate, calculator_tool, in_symbols


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3.5"),
        ("7 // 2", "3"),
        ("-7 % 3", "2"),
        ("2 ** 10", "1024"),
        ("2 ^ 10", "1024"),
        ("2 ** -1", "0.5"),
        ("0.1 + 0.2", "0.3"),
        ("12 × 7 ÷ 2", "42"),
        ("（3 ＋ 4）* 2", "14"),
        ("sqrt(16) + abs(-2)", "6"),
        ("max(1, 5, 3) - min(2, 1)", "4"),
        ("round(3.14159, 2)", "3.14"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("(-1) ** 10000000001", "-1"),
        ("1 ** 99999999999", "1"),
        ("0 ** 0", "1"),
        ("floor(2.7) + ceil(2.1)", "5"),
        ("pi", "3.14159265358979"),
        ("1e3", "1000"),
    ],
)
def test_arithmetic(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "__import__('os').getcwd()",
        "().__class__.__bases__",
        "'a' * 10**9",
        "[1] * 10**9",
        "9**9**9",
        "2 ** 100000",
        "10.0 ** 400",
        "1e999",
        "1e308 * 10",
        "9" * 999 + "*" + "9",
        "(" * 900 + "1" + ")" * 90,
        "-" * 900 + "1",
        "+".join("1" * 400),
        "1" * 100_000,
        "lambda: 1",
        "(lambda: 1)()",
        "x",
        "1 < 2",
        "True",
        "1j",
        "1 if 1 else 2",
        "abs(x=1)",
        "abs(*[1])",
        "open('x')",
        "max()",
        "sqrt(-1)",
        "(-8) ** 0.5",
        "log(0)",
        "1 / 0",
        "0 ** -1",
        "0.0 ** -1",
        "sqrt(10 ** 400)",
        "exp(1000)",
        "2 << 1000000",
        "round(1, 'a')",
        "round(1.5, 1e9)",
        "1,234",
        "f'{1}'",
        "(y := 1)",
        "1;2",
        "北京",
        "\x00",
    ],
)
def test_everything_else_is_an_argument_error(expression):
    with pytest.raises(InvalidArguments, match="argument 'expression'"):
        calculate(expression)


def test_the_tool_takes_an_expression():
    tool = calculator_tool()
    assert (tool.name, list(tool.parameters["properties"])) == ("calculator", ["expression"])
    assert tool(**tool.check({"expression": "12 * 7"})) == "12 * 7 = 84"
    assert tool(**tool.check({"expression": "sqrt(16) + 1"})) == "sqrt(16) + 1 = 5"
    assert tool(**tool.check({"expression": "8.5减2"})) == "8.5 - 2 = 6.5"


@pytest.mark.parametrize(
    ("words", "symbols"),
    [
        ("12.5加30", "12.5 + 30"),
        ("100减去37", "100 - 37"),
        ("8乘以9", "8 * 9"),
        ("20乘5", "20 * 5"),
        ("8除以2", "8 / 2"),
        ("3 plus 4 minus 2", "3 + 4 - 2"),
        ("3 Times -2", "3 * -2"),
        ("6 divided by 4", "6 / 4"),
        ("3 multiplied by 4", "3 * 4"),
        ("2 to the power of 5", "2 ** 5"),
        ("15% of 200", "15 / 100 * 200"),
        ("3x4", "3 * 4"),
        ("1,000 + 250", "1000 + 250"),
        ("5*(2+3)", "5 * (2 + 3)"),
        ("（3＋4）×2", "(3 + 4) * 2"),
        ("3+4)", "3 + 4"),
        ("2^10", "2 ** 10"),
        ("17 % 5", "17 % 5"),
        ("max(1,200)", "max(1,200)"),
        ("hello", "hello"),
    ],
)
def test_operator_words_become_operators(words, symbols):
    assert in_symbols(words) == symbols


def offered(text: str) -> list[str]:
    """What the grammar of a copied argument with the pattern admits."""
    pattern = copied.CopyRule.from_schema({"type": "string", "pattern": EXPRESSION_PATTERN}, "the argument").pattern
    assert pattern is not None
    return copied.matches(pattern, [text])


@pytest.mark.parametrize(
    ("text", "expressions"),
    [
        ("What is 23 * 17?", ["23 * 17"]),
        ("12.5加30等于多少？", ["12.5加30"]),
        ("100减去37等于多少？", ["100减去37"]),
        ("How much is 250 plus 375, please", ["250 plus 375"]),
        ("what is 5*(2+3) then", ["5*(2+3)"]),
        ("你好", []),
        ("What is the weather in Beijing today?", []),
        ("I have 3 apples and 4 pears", []),
    ],
)
def test_a_text_offers_its_arithmetic(text, expressions):
    assert offered(text) == expressions
