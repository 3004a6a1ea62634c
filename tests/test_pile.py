"""How the cells of a run are handed to its workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import op
from harness.pile import Pile
from harness.providers import providers
from harness.selection import Cell

MERGE, GREEDY = providers()["merge_state", "torch_eager"], providers()["greedy", "torch_eager"]
OTHER = providers()["merge_state", "sglang_wrapper"]


def merges(count: int) -> list[Cell]:
    cases = [op("merge_state").axes.case(tokens=1 + number, heads=1, dim=16, dtype="fp32") for number in range(count)]
    return [Cell("merge_state", provider, case, "cpu") for case in cases for provider in (MERGE, OTHER)]


def greedies(count: int) -> list[Cell]:
    return [Cell("greedy", GREEDY, op("greedy").axes.case(batch=1 + number, vocab=9, dtype="fp32"), "cpu") for number in range(count)]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 5), st.lists(st.integers(0, 4), max_size=200))
def test_each_cell_is_handed_out_once_and_no_case_is_split(first, second, workers, turns):
    """Whoever asks, in whatever order."""
    cells = [*merges(first), *greedies(second), Cell("greedy", GREEDY, None, "cpu", "absent", "not installed")]
    pile, given_out = Pile(cells, workers), []
    for slot in (*(turn % workers for turn in turns), *range(workers)):
        while case := pile.take(slot):
            given_out.append(case)
            if len(given_out) < len(turns):
                break
    assert pile.take(0) is None
    assert sorted(cell.id for case in given_out for cell in case) == sorted(cell.id for cell in cells)
    assert all(len({(cell.op, cell.case.id if cell.case else "") for cell in case}) == 1 for case in given_out)
    assert len(given_out) == first + second + 1


def test_one_worker_goes_through_the_list_as_it_is():
    cells = [*merges(40), *greedies(20)]
    pile = Pile(cells, 1)
    assert [cell for case in iter(lambda: pile.take(0), None) for cell in case] == cells


def test_ops_take_turns_among_several_workers():
    pile = Pile([*merges(40), *greedies(20)], 2)
    assert [pile.take(slot)[0].op for slot in (0, 1)] == ["merge_state", "greedy"]


def test_who_has_nothing_left_takes_over_from_the_end_of_who_has_most():
    """The first worker is held up in its first case: the others do all the rest."""
    cells = merges(16)
    pile = Pile(cells, 3)
    held_up = pile.take(0)
    rest = [pile.take(1 + number % 2) for number in range(15)]
    assert held_up[0].case == cells[0].case
    assert [case[0].case for case in rest] == [cell.case for cell in cells[::2][:0:-1]]
    assert pile.take(1) is pile.take(0) is None
