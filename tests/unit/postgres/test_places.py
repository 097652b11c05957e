import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_toolrag.postgres.places import GAP, placed

some_places = st.lists(
    st.none() | st.integers(0, 60) | st.integers(-(2**50), 2**50), max_size=30
).map(
    lambda places: [p if p is None or p not in places[:n] else None for n, p in enumerate(places)]
)


@given(some_places)
def test_places_grow_in_the_order_that_is_wanted(known):
    places = placed(known)
    assert len(places) == len(known)
    assert places == sorted(set(places))


@given(st.lists(st.integers(-(2**50), 2**50), unique=True, max_size=30).map(sorted))
def test_nobody_moves_whose_order_stays(known):
    assert placed(known) == known


@given(st.permutations([n * GAP for n in range(8)]))
def test_no_fewer_could_have_moved(known):
    stayed = sum(a == b for a, b in zip(known, placed(known), strict=True))
    runs = [1] * len(known)
    for n, place in enumerate(known):
        runs[n] += max((runs[m] for m in range(n) if known[m] < place), default=0)
    assert stayed == max(runs)


def test_the_first_ones_stand_apart():
    assert placed([None, None]) == [GAP, 2 * GAP]
    assert placed([]) == []


def test_tools_that_come_one_by_one_in_the_middle_move_nobody_for_long():
    places = placed([None, None])
    for _ in range(300):
        new = placed([*places[:-1], None, places[-1]])
        assert [*new[:-2], new[-1]] == places
        places = new


@pytest.mark.parametrize("known", [[1, None, 2], [5, None, None, 7]])
def test_without_room_all_are_placed_anew(known):
    assert placed(known) == [GAP * n for n in range(1, len(known) + 1)]
