"""Which calls count as one run's, when the policy asks who had least."""

from __future__ import annotations

from tenuto.engine.session import ServiceLedger
from tenuto.protocol.hints import RunHints


def test_a_run_is_its_tenants_own_and_no_run_is_nobodys():
    ledger = ServiceLedger()
    run = ledger.of(RunHints(tenant="甲", run="研究"))
    run.tokens = 7
    assert ledger.of(RunHints(tenant="甲", run="研究", priority=1)) is run
    others = [RunHints(tenant="乙", run="研究"), RunHints(run="研究"), RunHints(tenant="甲", run="写作")]
    assert [ledger.of(hints).tokens for hints in others] == [0, 0, 0]
    assert ledger.of(RunHints(tenant="甲")) is not ledger.of(RunHints(tenant="甲"))


def test_runs_unheard_of_for_long_begin_anew():
    ledger = ServiceLedger(max_runs=2)
    first = ledger.of(RunHints(run="a"))
    ledger.of(RunHints(run="b"))
    assert ledger.of(RunHints(run="a")) is first
    ledger.of(RunHints(run="c"))
    assert ledger.of(RunHints(run="a")) is first
    second = ledger.of(RunHints(run="b"))
    assert second is ledger.of(RunHints(run="b")) and second is not first
