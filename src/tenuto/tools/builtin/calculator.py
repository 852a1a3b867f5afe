"""The calculator tool: arithmetic through an allowlist of syntax, with limits on size, power and depth."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from typing import Annotated, Any

import pydantic

from tenuto.errors import InvalidArguments
from tenuto.tools.schema import Copied, Example, Tool, tool

_MAX_CHARS = 1000
_MAX_DEPTH = 100
_MAX_BITS = 4096  # about 1200 digits
_MAX_ARGUMENTS = 64
_SPELLINGS = str.maketrans({"×": "*", "÷": "/", "−": "-", "（": "(", "）": ")", "＋": "+", "，": ",", "^": "**"})

_NUMBER = r"[0-9]+(,[0-9]{3})*(\.[0-9]+)?"
_SIGNS = r"[-+*/×÷−＋^]|\*\*|//"
_WORDS = (
    (r"plus|加上|加", "+"),
    (r"minus|减去|减", "-"),
    (r"multiplied by|times|x|乘以|乘", "*"),
    (r"divided by|over|除以", "/"),
    (r"to the power of", "**"),
    (r"% of|percent of", "/100*"),
    (r"%|mod", "%"),
)
_OPERATOR = f"({_SIGNS}|{'|'.join(words for words, _ in _WORDS)})"
_OPERAND = rf"([(（] ?)*-?{_NUMBER}( ?[)）])*"
EXPRESSION_PATTERN = f"(?i:{_OPERAND}( ?{_OPERATOR} ?{_OPERAND})+)"
"""What a question holds of arithmetic, as a regular expression: two numbers or more, with operators or their words in
English and Chinese between them. The grammar copies by it, so that a small model finds no arithmetic in "你好"."""

Expression = Annotated[Copied[str], pydantic.Field(json_schema_extra={"pattern": EXPRESSION_PATTERN})]

Number = int | float

_CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "log": math.log,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
}


_EXAMPLES = (
    Example("8.5减2等于多少？", {"expression": "8.5减2"}, "8.5 - 2 = 6.5", "8.5 - 2 = 6.5。"),
    Example("What is 6 * 14?", {"expression": "6 * 14"}, "6 * 14 = 84", "6 * 14 = 84."),
)


def calculator_tool() -> Tool:
    """The tool `calculator(expression)`."""

    @tool(deadline_s=5.0, examples=_EXAMPLES)
    def calculator(expression: Expression) -> str:
        """work out arithmetic"""
        read = in_symbols(expression)
        return f"{read} = {calculate(read)}"

    return calculator


def in_symbols(expression: str) -> str:
    """The expression with operator words as operators, and single spaces around operators between numbers.

    What is no arithmetic in words, e.g. sqrt(2), stays as it is; so does what cannot be worked out.
    """
    text = " ".join(expression.split())
    if not re.fullmatch(EXPRESSION_PATTERN, text):
        return text
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3})", "", text).translate(_SPELLINGS)
    for words, operator in _WORDS:
        text = re.sub(words, f" {operator} ", text, flags=re.I)
    text = re.sub(r"(?<=[0-9)])\s*(\*\*|//|[-+*/%])\s*", r" \1 ", text)
    return _balanced(re.sub(r"(?<=\() | (?=\))", "", " ".join(text.split())))


def _balanced(text: str) -> str:
    """Without the parentheses that have no partner: a sentence around the expression may have left one."""
    opened: list[int] = []
    single: set[int] = set()
    for at, char in enumerate(text):
        if char == "(":
            opened.append(at)
        elif char == ")":
            if opened:
                opened.pop()
            else:
                single.add(at)
    single.update(opened)
    return "".join(char for at, char in enumerate(text) if at not in single).strip()


def calculate(expression: str) -> str:
    """The value as text: integers whole, floats to 15 digits. Raises InvalidArguments with the reason."""
    if len(expression) > _MAX_CHARS:
        raise InvalidArguments(f"argument 'expression': at most {_MAX_CHARS} characters, got {len(expression)}")
    try:
        tree = ast.parse(expression.translate(_SPELLINGS).strip(), mode="eval")
        value = _evaluate(tree.body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise InvalidArguments(f"argument 'expression': not an expression I can work out: {reason}") from error
    except ZeroDivisionError as error:
        raise InvalidArguments("argument 'expression': it divides by zero") from error
    except (OverflowError, TypeError) as error:
        raise InvalidArguments(f"argument 'expression': {error}") from error
    return str(value) if isinstance(value, int) else format(value, ".15g")


def _evaluate(node: ast.expr, depth: int) -> Number:
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value: Any = node.value
    elif isinstance(node, ast.Name) and node.id in _CONSTANTS:
        value = _CONSTANTS[node.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        operand = _evaluate(node.operand, depth + 1)
        value = -operand if isinstance(node.op, ast.USub) else operand
    elif isinstance(node, ast.BinOp):
        value = _binary(node.op, _evaluate(node.left, depth + 1), _evaluate(node.right, depth + 1))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if node.keywords or len(node.args) > _MAX_ARGUMENTS:
            raise ValueError(f"{node.func.id} takes up to {_MAX_ARGUMENTS} plain numbers")
        value = _FUNCTIONS[node.func.id](*(_evaluate(argument, depth + 1) for argument in node.args))
    else:
        raise ValueError("only numbers, + - * / // % **, parentheses, pi, e and " + ", ".join(_FUNCTIONS))
    return _bounded(value)


def _binary(operator: ast.operator, left: Number, right: Number) -> Number:
    value: Number
    match operator:
        case ast.Add():
            value = left + right
        case ast.Sub():
            value = left - right
        case ast.Mult():
            value = left * right
        case ast.Div():
            value = left / right
        case ast.FloorDiv():
            value = left // right
        case ast.Mod():
            value = left % right
        case ast.Pow():
            value = _power(left, right)
        case _:
            raise ValueError("of the operators only + - * / // % ** are known")
    return value


def _power(base: Number, exponent: Number) -> Number:
    """Refuses by the size the result would have, before computing it."""
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > _MAX_BITS:
        if abs(base) > 1:
            raise OverflowError(f"the power has more than {_MAX_BITS} bits")
        exponent = exponent % 2 + 2  # of 0, 1 and -1 only the exponent's parity matters
    value: Number = base**exponent
    return value


def _bounded(value: Any) -> Number:
    if type(value) not in (int, float):
        raise ValueError("the result is not a real number")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise OverflowError(f"the number has more than {_MAX_BITS} bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError("the number is too large")
    return value  # type: ignore[no-any-return]
