"""The docs are complete: every setting, route, event and command stands in them."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import click
import msgspec
import pytest
import typer.main

from tenuto.agents import AgentEvent
from tenuto.cli.main import app as cli
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.ids import IdSource
from tenuto.protocol.engine import SamplingParams
from tenuto.server import create_app
from tenuto.testing.scripted_model import ScriptedModel

DOCS = Path(__file__).parents[2] / "docs"


def _doc(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("field", sorted(Config.model_fields))
def test_every_setting_is_documented(field: str) -> None:
    assert re.search(rf"^\| `{field}` \|", _doc("configuration.md"), re.M)


def test_no_setting_is_documented_that_is_gone() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", _doc("configuration.md"), re.M)) == set(Config.model_fields)


def test_every_route_is_documented() -> None:
    app = create_app(ScriptedModel([]), served_names=("m",), clock=RealClock(), ids=IdSource(1))
    for path in app.openapi()["paths"]:
        assert f"`{path}`" in re.sub(r"(GET|POST) ", "", _doc("server.md")), path


@pytest.mark.parametrize("event", typing.get_args(AgentEvent), ids=lambda e: e.__name__)
def test_every_event_and_field_is_documented(event: type[msgspec.Struct]) -> None:
    section = _doc("events.md").split(f"`{event.__struct_config__.tag}`", 1)
    assert len(section) == 2, f"{event.__name__} is not in docs/events.md"
    for field in event.__struct_fields__:
        assert f"`{field}`" in section[1], f"{event.__name__}.{field}"


@pytest.mark.parametrize("field", [*SamplingParams.__struct_fields__, "logprobs", "n"])
def test_every_sampling_parameter_is_documented(field: str) -> None:
    assert re.search(rf"^\| `{field}` \|", _doc("sampling.md"), re.M)


def test_every_command_and_option_is_documented() -> None:
    text = _doc("cli.md")
    group = typer.main.get_command(cli)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    for name, command in _commands(group):
        assert f"## tenuto {name}\n" in text, name
        section = re.split(r"\n##+ ", text.split(f"## tenuto {name}\n", 1)[1], maxsplit=1)[0]
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option != "--help":
                    assert f"`{option}`" in section or f"`{option} " in section, f"{name} {option}"


def _commands(group: typing.Any, prefix: str = "") -> list[tuple[str, typing.Any]]:
    """All commands by full name, those of groups too."""
    found = []
    for name, command in group.commands.items():
        found.append((prefix + name, command))
        if hasattr(command, "commands"):
            found += _commands(command, f"{prefix}{name} ")
    return found
