from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_hub import FakeHub


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub().running() as running:
        yield running
