"""The one place where Jinja runs. Templates come out of model files, so they are strangers' programs.

Jinja's immutable sandbox keeps them from Python's internals, but not from running for ever or filling the memory.
Python cannot interrupt a thread, so the limit is built into the compiled template: every turn of a loop, every call
and every filter takes a step from a budget, every operation that can blow up a value is measured before it is done,
and the output is counted as it comes. With a bounded number of bounded steps the time is bounded too, the same on
every machine; the clock is asked as well, for machines that are slow.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tenuto.clock import Clock
from tenuto.errors import TemplateError


@dataclass(frozen=True)
class RenderLimits:
    """How much a template may cost before it is stopped."""

    max_source_chars: int = 200_000
    max_output_chars: int = 8_000_000
    max_value_chars: int = 8_000_000  # of any text or list in between
    max_steps: int = 500_000  # turns of loops, calls and filters
    deadline_s: float = 5.0


class _OverLimit(jinja2.TemplateError):
    """The template costs too much."""


class _Raised(jinja2.TemplateError):
    """The template called raise_exception."""


class _Budget:
    def __init__(self, limits: RenderLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._steps = 0
        self._end_s = clock.now() + limits.deadline_s

    def step(self) -> None:
        self._steps += 1
        if self._steps > self._limits.max_steps:
            raise _OverLimit(f"it takes more than {self._limits.max_steps} steps")
        if self._clock.now() > self._end_s:
            raise _OverLimit(f"it takes more than {self._limits.deadline_s} s")

    def size(self, amount: int) -> None:
        if amount > self._limits.max_value_chars:
            raise _OverLimit(f"a value is larger than {self._limits.max_value_chars} characters")

    def number(self, num_digits: int) -> None:
        if num_digits > 1000:
            raise _OverLimit("a number has more than 1000 digits")


_budget: ContextVar[_Budget] = ContextVar("template budget")


def _length(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return value.bit_length() // 3 if isinstance(value, int) else 20


def _tick(iterable: Any) -> Iterator[Any]:
    """What a for loop goes through, at one step a turn."""
    budget = _budget.get()
    for item in iterable:
        budget.step()
        yield item


def _concatenated(*parts: Any) -> str:
    texts = [str(part) for part in parts]
    _budget.get().size(sum(map(len, texts)))
    return "".join(texts)


def _stepped(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, at one step a use."""

    @functools.wraps(filter_)  # keeps jinja's note of what it wants passed
    def stepped(*args: Any, **kwargs: Any) -> Any:
        _budget.get().step()
        return filter_(*args, **kwargs)

    return stepped


class _GenerationExtension(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 -- jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _measured(filter_: Callable[..., Any], cost: Callable[..., int]) -> Callable[..., Any]:
    def limited(value: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(value, (str, int, float, list, tuple, dict)):
            value = list(value) if isinstance(value, Iterable) else value
        _budget.get().step()
        _budget.get().size(cost(value, *args, **kwargs))
        return filter_(value, *args, **kwargs)

    return limited


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    """JSON as models are trained on it: no HTML or ASCII escapes."""
    if indent is not None and not 0 <= indent <= 16:
        raise _OverLimit("tojson takes an indent of 0 to 16")
    separators = options.get("separators")
    return json.dumps(
        value,
        ensure_ascii=bool(options.get("ensure_ascii", False)),
        indent=indent,
        separators=None if separators is None else tuple(separators),
        sort_keys=bool(options.get("sort_keys", False)),
    )


def _join(value: Any, d: str = "", attribute: str | None = None) -> str:
    """Jinja's own join escapes for HTML; texts for models have none."""
    items = [(item.get(attribute) if isinstance(item, Mapping) else None) if attribute else item for item in value]
    return str(d).join(map(str, items))


def _raise_exception(message: Any) -> None:
    raise _Raised(str(message))


# Filters that chat templates use and whose cost is bounded by the size of what they are given.
# Not `sum`: over lists it is quadratic.
_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length"),
    *("list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select"),
    *("selectattr", "sort", "string", "title", "trim", "unique", "upper"),
)
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Puts the counting into the program itself, so that no path through it escapes."""
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, "tick", [], [], None, None, lineno=loop.lineno)
        for node in list(tree.find_all(nodes.Node)):
            for field, child in list(node.iter_fields()):
                if isinstance(child, nodes.Concat):
                    setattr(node, field, _as_filter(child))
                elif isinstance(child, list):
                    child[:] = [_as_filter(c) if isinstance(c, nodes.Concat) else c for c in child]
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = _budget.get()
        if operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                budget.number(_length(left) + _length(right))
            elif isinstance(left, int) or isinstance(right, int):
                times, value = (left, right) if isinstance(left, int) else (right, left)
                budget.size(times * _length(value))
        elif operator == "**":
            budget.number(_length(left) * abs(int(right)))
        elif operator == "%" and isinstance(left, str):
            raise _OverLimit("formatting with % is not allowed in templates; use ~")
        elif operator == "+":
            budget.size(_length(left) + _length(right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Where the sandbox would hand out a safe `str.format`, hand out none: a width in it can fill the memory."""
        return None if super().wrap_str_format(value) is None else _no_format

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget.get()
        budget.step()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            if name in _PADDING_METHODS:
                widths = [abs(a) for a in args if isinstance(a, int)]
                budget.size((max(widths, default=8) + 1) * (len(owner) + 1 if name == "expandtabs" else 1))
            if name == "replace" and len(args) > 1:
                budget.size((len(owner) + 1) * (len(str(args[1])) + 1) // max(1, len(str(args[0]))))
            if name == "join" and args:
                items = list(args[0])
                args = (items, *args[1:])
                budget.size(len(owner) * len(items) + sum(map(_length, items)))
        return super().call(context, obj, *args, **kwargs)


def _as_filter(node: nodes.Concat) -> nodes.Filter:
    return nodes.Filter(node.nodes[0], "concatenated", node.nodes[1:], [], None, None, lineno=node.lineno)


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        extensions=[LoopControlExtension, _GenerationExtension],
        cache_size=0,
    )
    own = environment.filters
    kept = {name: _stepped(own[name]) for name in _FILTERS}
    replace = kept.pop("replace")
    environment.filters = {
        **kept,
        "tick": _tick,
        "concatenated": _concatenated,
        "tojson": _measured(_tojson, lambda value, *a, **k: 0),
        "join": _measured(_join, lambda v, d="", *a, **k: len(str(d)) * len(v) + sum(map(_length, v))),
        "indent": _measured(
            own["indent"], lambda s, width=4, *a, **k: (str(s).count("\n") + 1) * _width(width) + len(s)
        ),
        "replace": _measured_context(replace),
    }
    environment.globals = {
        "range": environment.globals["range"],
        "namespace": environment.globals["namespace"],
        "dict": dict,
        "raise_exception": _raise_exception,
    }
    return environment


def _no_format(*args: Any, **kwargs: Any) -> str:
    raise _OverLimit("str.format is not allowed in templates; use ~")


def _width(width: Any) -> int:
    return width if isinstance(width, int) else len(str(width))


def _measured_context(replace: Callable[..., Any]) -> Callable[..., Any]:
    @jinja2.pass_eval_context
    def limited(context: Any, value: Any, old: Any, new: Any, count: int | None = None) -> Any:
        # Every place where `old` may be found, and there are len + 1 of them for the empty string, grows by `new`.
        _budget.get().size((len(str(value)) + 1) * (len(str(new)) + 1) // max(1, len(str(old))))
        return replace(context, str(value), str(old), str(new), count)

    return limited


class SandboxedTemplate:
    """A compiled template. Rendering it has no effect but its text, and ends.

    Args:
        source: Jinja text, trusted in nothing.
        clock: for `strftime_now` and the deadline.

    Raises:
        TemplateError: the source is no template, or too long.
    """

    def __init__(self, source: str, clock: Clock, limits: RenderLimits = RenderLimits()) -> None:
        if len(source) > limits.max_source_chars:
            raise TemplateError(f"the chat template is longer than {limits.max_source_chars} characters")
        self._clock = clock
        self._limits = limits
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as error:
            raise TemplateError(f"the chat template cannot be compiled: {error}") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text. Raises TemplateError with the template's own reason, or with the limit that it broke."""
        token = _budget.set(_Budget(self._limits, self._clock))
        try:
            return self._collect({**variables, "strftime_now": self._strftime_now})
        except _Raised as error:
            raise TemplateError(f"the chat template refuses these messages: {error}") from error
        except _OverLimit as error:
            raise TemplateError(f"the chat template was stopped: {error}") from error
        except (RecursionError, MemoryError) as error:
            raise TemplateError("the chat template was stopped: it is nested too deeply or too large") from error
        except Exception as error:  # a template can provoke any exception
            raise TemplateError(f"the chat template failed: {type(error).__name__}: {error}") from error
        finally:
            _budget.reset(token)

    def _collect(self, variables: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        num_chars = 0
        for piece in self._template.generate(variables):
            num_chars += len(piece)
            if num_chars > self._limits.max_output_chars:
                raise _OverLimit(f"its text is longer than {self._limits.max_output_chars} characters")
            pieces.append(piece)
        text = "".join(pieces)
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise _OverLimit("its text holds half of a surrogate pair, which is no character")
        return text

    def _strftime_now(self, pattern: str) -> str:
        if len(pattern) > 100:
            raise _OverLimit("strftime_now takes a pattern of at most 100 characters")
        return self._clock.today().strftime(pattern)
