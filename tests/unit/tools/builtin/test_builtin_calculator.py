from __future__ import annotations

import pytest

from tenuto.errors import InvalidArguments
from tenuto.tools.builtin.calculator import calculate, calculator_tool


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
    assert tool(**tool.check({"expression": "12 * 7"})) == "84"
