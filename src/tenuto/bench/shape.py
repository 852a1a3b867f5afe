"""How large a workload of agents is, as plain numbers."""

from __future__ import annotations

import msgspec

from tenuto.errors import ConfigError

MAX_AGENTS = 1024
MAX_TURNS = 1024
MAX_WORDS = 100_000
MAX_OUTPUT_TOKENS = 100_000
MAX_TOOL_S = 3600.0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A agents of T turns each. They share a system prompt; each turn adds the result of a tool, then O tokens are
    generated, exactly, then the next tool takes its time. After the last turn there is no tool.

    Raises ConfigError for a number that is out of range.
    """

    agents: int = 8
    turns: int = 8
    prompt_words: int = 600  # of the system prompt, equal for all agents
    result_words: int = 120  # of what each turn adds
    output_tokens: int = 40  # of each turn; ends of turns are ignored, so that every system generates as many
    tool_s: float = 0.05
    seed: int = 1

    def __post_init__(self) -> None:
        bounds: tuple[tuple[str, float, float, float], ...] = (
            ("agents", self.agents, 1, MAX_AGENTS),
            ("turns", self.turns, 1, MAX_TURNS),
            ("prompt_words", self.prompt_words, 1, MAX_WORDS),
            ("result_words", self.result_words, 1, MAX_WORDS),
            ("output_tokens", self.output_tokens, 1, MAX_OUTPUT_TOKENS),
            ("tool_s", self.tool_s, 0, MAX_TOOL_S),
        )
        for name, value, least, most in bounds:
            if not least <= value <= most:
                raise ConfigError(f"{name} of the workload is {value}; it must lie between {least} and {most}")

    def with_agents(self, agents: int) -> Shape:
        return msgspec.structs.replace(self, agents=agents)
