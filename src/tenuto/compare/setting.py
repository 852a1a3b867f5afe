"""The two sides of a comparison, as they are typed: `fp32`, `int8/int8`, `model=PATH,precision=bf16`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tenuto.config import Config
from tenuto.errors import ConfigError

DeviceName: TypeAlias = Literal["best", "reference"]

_PRECISIONS = get_args(Config.model_fields["precision"].annotation)
_KV_TYPES = get_args(Config.model_fields["kv_type"].annotation)
_SHORT = {"threads": "num_threads"}  # as the command line calls it


@dataclass(frozen=True)
class Setting:
    """One side: settings on top of those that both share.

    Attributes:
        text: as it was typed.
        overrides: values by the name of the setting.
        device: "best" is the device that the precision has on this machine; "reference" the one that defines it.
    """

    text: str
    overrides: tuple[tuple[str, str], ...] = ()
    device: DeviceName = "best"

    def config(self, **shared: object) -> Config:
        """All settings of this side. Raises ConfigError naming the one that is wrong."""
        return Config.load(**(shared | dict(self.overrides)))


def parse_setting(text: str) -> Setting:
    """Read `PRECISION`, `PRECISION/KV_TYPE`, or `name=value,...` with any setting's name; the first may begin the last.

    `device=reference` computes on the device that defines the precision. A comma inside a value is part of it unless
    `name=` follows.

    Raises ConfigError: it is none of these, or names no setting.
    """
    overrides: dict[str, str] = {}
    device: DeviceName = "best"
    for index, part in enumerate(re.split(r",(?=\s*\w+\s*=)", text.strip())):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = _SHORT.get(name, name)
        if not equals and index == 0:
            overrides |= _precision(part.strip(), text)
        elif name == "device" and value in get_args(DeviceName):
            device = "reference" if value == "reference" else "best"
        elif name == "device":
            raise ConfigError(f"setting device in {text!r:.80}: {value!r:.40} is neither best nor reference")
        elif equals and name in Config.model_fields and name not in overrides:
            overrides[name] = value
        else:
            again = name in overrides
            problem = f"{name} is given twice" if again else f"{part.strip()!r:.80} is no setting; write name=value"
            raise ConfigError(f"{text!r:.80}: {problem}, e.g. {_EXAMPLES}")
    return Setting(text.strip(), tuple(overrides.items()), device)


_EXAMPLES = "`int8/int8`, `precision=int8,num_threads=1` or `model=PATH,precision=bf16` (docs/compare.md)"


def _precision(word: str, text: str) -> dict[str, str]:
    precision, slash, kv_type = word.partition("/")
    if precision in _PRECISIONS and (kv_type in _KV_TYPES if slash else True):
        return {"precision": precision} | ({"kv_type": kv_type} if slash else {"kv_type": "float"})
    raise ConfigError(
        f"{text!r:.80}: {word!r:.40} is no precision ({', '.join(_PRECISIONS)}, or with the type of KV, such as "
        f"int8/int8); a side looks like {_EXAMPLES}"
    )
