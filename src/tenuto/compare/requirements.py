"""What a script demands of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.compare.plan import Part, Plan
from tenuto.compare.report import Comparison
from tenuto.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """None and False demand nothing."""

    max_kl: float | None = None  # nats a token, mean over each text
    max_ppl: float | None = None  # percent that perplexity may change by, either way, on each text
    min_calls: float | None = None  # percent of tool calls that are the same
    exact: bool = False  # the verdict on exact numbers and code must not be "unsafe"

    def check(self, plan: Plan) -> None:
        """Raises ConfigError: something is demanded that the plan does not measure."""
        needed: list[tuple[bool, str, Part]] = [
            (self.max_kl is not None, "--max-kl", "accuracy"),
            (self.max_ppl is not None, "--max-ppl", "accuracy"),
            (self.min_calls is not None, "--min-calls", "calls"),
            (self.exact, "--exact", "accuracy"),
            (self.exact, "--exact", "copies"),
            (self.exact, "--exact", "calls"),
        ]
        for is_wanted, option, part in needed:
            if is_wanted and part not in plan.parts:
                raise ConfigError(f"{option} needs the part {part}, which --only leaves out")


def unmet(required: Requirements, found: Comparison) -> list[str]:
    """Each demand that is not met, with the number; what could not be measured is not met."""
    problems = []
    for text in found.texts:
        if required.max_kl is not None and not text.mean_kl <= required.max_kl:
            problems.append(f"{text.text}: mean KL {text.mean_kl:.4g} is above {required.max_kl:g}")
        if required.max_ppl is not None and not abs(text.perplexity_change) * 100 <= required.max_ppl:
            change = f"{text.perplexity_change * 100:+.3f} %"
            problems.append(f"{text.text}: perplexity changes by {change}, more than {required.max_ppl:g} %")
    if required.min_calls is not None:
        if found.calls is None:
            problems.append("tool calls could not be compared")
        elif found.calls.agreement * 100 < required.min_calls:
            percent = f"{found.calls.agreement * 100:.1f} %"
            problems.append(f"tool calls: {percent} are the same, fewer than {required.min_calls:g} %")
    if required.exact and found.verdict.is_safe_for_exact is not True:
        reasons = "; ".join(found.verdict.reasons) or "not all was measured"
        problems.append(f"not safe for exact numbers and code: {reasons}")
    return problems
