"""The ledger: what it lists is no finding, what it lists and no longer happens is, and a broken one is one clear line."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import ops
from harness.errors import UsageError
from harness.offline.codegen.adapters import ADAPTERS
from harness.offline.targets import load_targets
from harness.providers import providers
from harness.selection import DEFAULT_CASES
from harness.served.attention.backends import BACKENDS
from harness.store import conditions
from harness.store.ledger import Entry, Ledger, load_ledger
from harness.store.results import FINDINGS, QUIET, STATUSES, Result

TARGETS = load_targets(DEFAULT_CASES / "targets.toml")


def result(status="mismatch", reason="numerics", **fields):
    base = {"cell": "o[p-a]", "op": "o", "provider": "p", "case": "a", "platform": "cuda", "values": {"heads": 12, "dtype": "bf16"}}
    return Result(**{**base, "status": status, "reason": reason, "versions": {"lib": "1.2.0"}, "device": {"arch": "sm_90"}, **fields})


def entry(**fields):
    return Entry(**{"op": "o", "provider": "p", "why": "known", "status": "mismatch", **fields})


@pytest.mark.parametrize("status", FINDINGS)
def test_an_unlisted_finding_is_one(status):
    assert Ledger().judge(result(status)).kind == "finding"


@pytest.mark.parametrize("status", ["pass", *QUIET])
def test_what_is_not_a_finding_is_ok(status):
    assert Ledger().judge(result(status, "")).kind == "ok"


def test_a_listed_finding_is_known_and_strict_the_other_way():
    ledger = Ledger([entry(reason="numerics")])
    assert ledger.judge(result()).kind == "known"
    assert ledger.judge(result(reason="support")).kind == "finding"
    assert ledger.judge(result("pass", "")).kind == "gone"
    assert ledger.judge(result("absent", "")).kind == "ok"


def test_sometimes_is_not_missed_when_it_does_not_happen():
    assert Ledger([entry(happens="sometimes")]).judge(result("pass", "")).kind == "ok"


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ({"where": {"heads": 12}}, True),
        ({"where": {"heads": [12, 24], "dtype": "bf16"}}, True),
        ({"where": {"heads": 16}}, False),
        ({"where": {"depth": 1}}, False),
        ({"where": {"heads": "!2^n"}}, True),
        ({"where": {"heads": ">=12,<13"}}, True),
        ({"where": {"heads": ">12"}}, False),
        ({"where": {"heads": "!12"}}, False),
        ({"where": {"heads": ">8", "dtype": "fp16"}}, False),
        ({"library": "lib", "versions": ">=1,<1.3"}, True),
        ({"library": "lib", "versions": ">=1.3"}, False),
        ({"library": "other", "versions": ">=0"}, False),
        ({"platforms": ("rocm",)}, False),
        ({"arch": ("sm_90",)}, True),
        ({"arch": ("gfx950",)}, False),
    ],
)
def test_scope(scope, covered):
    assert Ledger([entry(**scope)]).judge(result()).kind == ("known" if covered else "finding")


@given(st.integers(-1, 2000))
def test_a_power_of_two_is_one(number):
    assert conditions.holds(number, "!2^n") == (number not in [2**bit for bit in range(12)])


def test_a_required_cell_may_not_be_refused_or_absent():
    ledger = Ledger([entry(kind="required", status="")])
    for status in QUIET:
        assert ledger.judge(result(status, "")).kind == "finding"
        assert ledger.judge(result(status, "", case="", values={})).kind == "finding"
    assert ledger.judge(result("pass", "")).kind == "ok"


def test_the_harness_failing_is_neither():
    assert Ledger([entry()]).judge(result("error")).kind == "error"


@given(st.sampled_from(STATUSES), st.booleans())
def test_every_status_has_a_verdict(status, listed):
    kind = Ledger([entry()] if listed else []).judge(result(status)).kind
    assert kind in ("ok", "known", "finding", "gone", "error")


def test_an_entry_expires():
    assert entry(expires="2026-01-01").expired(date(2026, 1, 2))
    assert not entry(expires="2026-01-01").expired(date(2026, 1, 1))
    assert not entry().expired(date(2099, 1, 1))


GOOD = 'op = "o"\nprovider = "p"\nstatus = "mismatch"\nwhy = "w"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[entry", "cannot read the ledger"),
        ("[other]\n", "other"),
        ("[[entry]]\nop='o'\n", "needs provider, why"),
        (f"[[entry]]\n{GOOD}colour = 1\n", "unknown field 'colour'"),
        (f"[[entry]]\n{GOOD}versoins = '>1'\n", "unknown field 'versoins'; nearest: versions"),
        (f"[[entry]]\n{GOOD}kind = 'odd'\n", "kind is one of"),
        (f"[[entry]]\n{GOOD}happens = 'never'\n", "always or sometimes"),
        (f"[[entry]]\n{GOOD}library = 'lib'\n", "go together"),
        (f"[[entry]]\n{GOOD}library = 'lib'\nversions = 'new'\n", "Invalid specifier"),
        (f"[[entry]]\n{GOOD}expires = 'soon'\n", "isoformat"),
        ("[[entry]]\nop='o'\nprovider='p'\nwhy='w'\nstatus='fine'\n", "status it ends with"),
        (f"[[entry]]\n{GOOD}where = 3\n", "where is a table of axes"),
        (f"[[entry]]\n{GOOD}platforms = 'cpu'\n", "platforms is a list of words"),
        (f"[[entry]]\n{GOOD}library = 'lib'\nversions = 5\n", "versions is a text"),
        ("entry = [1, 2]\n", "is not a table"),
        (f"[[entry]]\n{GOOD}where = {{ heads = '>many' }}\n", "where heads: '>many' is no comparison"),
    ],
)
def test_a_broken_ledger_is_one_clear_line(tmp_path, text, said):
    path = tmp_path / "ledger.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as caught:
        load_ledger(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_no_ledger_file_is_one_clear_line(tmp_path):
    with pytest.raises(UsageError, match="cannot read the ledger"):
        load_ledger(tmp_path / "none.toml")


def test_the_projects_own_ledger_names_what_exists():
    served = {(op, backend.provider) for backend in BACKENDS.values() for op in backend.ops}
    for item in load_ledger(DEFAULT_CASES / "ledger.toml").entries:
        compiled = bool(item.platforms) and set(item.platforms) <= set(TARGETS)
        assert (item.op, item.provider) in (providers().keys() | served | (ADAPTERS.keys() if compiled else set())), item.place
        unknown = set(item.where) - set(ops()[item.op].axes.by_name) - ({"kernel", "triton"} if compiled else set())
        assert not unknown, f"{item.place}: {unknown}"
        assert item.expires, f"{item.place} has no day of review"
        assert item.versions or item.kind == "required", f"{item.place} would excuse every future version"
