import itertools
import math

import pytest
from documents import make_document
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag.evaluation.answering import Answer
from langchain_toolrag.evaluation.labelled import LabelledQuery
from langchain_toolrag.evaluation.measures import MEASURES, Siblings, credited, measure

NONE = Siblings([])
LETTERS = st.sampled_from("abcxyz")


def query(*relevant, alternatives=None):
    return LabelledQuery("q", "a request", relevant, alternatives or {})


def measured(asked, ranking, bound=(), siblings=NONE):
    (values,) = measure([asked], [Answer(tuple(ranking), tuple(bound), 1.0)], siblings)
    return values


def test_the_measures_of_a_ranking_are_those_of_the_textbook():
    values = measured(query("a", "b"), ["x", "a", "y", "z", "b"], bound=["a", "x", "y"])
    ideal = 1 + 1 / math.log2(3)
    assert values == {
        "recall@1": 0.0,
        "recall@3": 0.5,
        "recall@5": 1.0,
        "recall@10": 1.0,
        "ndcg@10": pytest.approx((1 / math.log2(3) + 1 / math.log2(6)) / ideal),
        "mrr": 0.5,
        "completeness@10": 1.0,
        "bound": 3.0,
        "bound_recall": 0.5,
        "bound_completeness": 0.0,
        "wrong_sibling": None,
    }
    assert tuple(values) == MEASURES


def test_a_query_with_no_answer_has_zero_for_everything():
    answers = [Answer(("a",), ("a",), 1.0), Answer((), (), 1.0), Answer(("x",), (), 1.0)]
    found, silent, wrong = measure([query("a")] * 3, answers, NONE)
    assert found["recall@1"] == found["mrr"] == found["bound_completeness"] == 1.0
    for values in (silent, wrong):
        assert {value for value in values.values() if value is not None} == {0.0}


def test_where_nothing_is_found_for_any_query_everything_is_zero():
    (values,) = measure([query("a")], [Answer((), (), 1.0)], NONE)
    assert values["ndcg@10"] == values["recall@10"] == 0.0


def test_ids_may_hold_spaces_other_scripts_and_what_we_call_places():
    ranking = ["place 0", "gold 0", "GET /a b", "天気"]
    assert measured(query("GET /a b", "天気"), ranking)["recall@3"] == 0.5
    assert measured(query("gold 0", "place 1"), ranking)["recall@10"] == 0.5


def test_an_alternative_counts_as_its_gold_tool():
    values = measured(query("a", alternatives={"a": ["b"]}), ["b", "x"], bound=["b"])
    assert values["recall@1"] == values["mrr"] == values["bound_recall"] == 1.0


def test_a_gold_tool_and_its_alternatives_count_once():
    asked = query("a", "c", alternatives={"a": ["b"]})
    values = measured(asked, ["b", "a", "c"], bound=["a", "b"])
    assert (values["recall@1"], values["recall@3"]) == (0.5, 1.0)
    third = 1 + 1 / math.log2(4)  # The second place is lost to a tool that is no news.
    assert values["ndcg@10"] == pytest.approx(third / (1 + 1 / math.log2(3)))
    assert (values["bound"], values["bound_recall"]) == (2.0, 0.5)


def test_one_tool_stands_for_one_gold_tool_only():
    asked = query("a", "c", alternatives={"a": ["b"], "c": ["b"]})
    assert measured(asked, ["b"])["recall@10"] == 0.5


def test_alternatives_are_shared_out_so_that_the_most_gold_tools_are_found():
    asked = query("a", "c", alternatives={"a": ["b", "d"], "c": ["b"]})
    assert credited(asked, ["b", "d"]) == {"a": 1, "c": 0}


@settings(max_examples=200)
@given(
    accepted=st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=3),
    ranking=st.permutations("abcdef"),
    length=st.integers(0, 6),
)
def test_every_beginning_of_a_ranking_is_credited_with_as_many_gold_tools_as_it_can(
    accepted, ranking, length
):
    golds = [f"gold{n}" for n in range(len(accepted))]
    asked = query(*golds, alternatives=dict(zip(golds, map(sorted, accepted), strict=True)))
    places = credited(asked, ranking[:length])
    assert len(set(places.values())) == len(places)
    for end in range(length + 1):
        beginning = ranking[:end]
        most = max(
            sum(tool in some for tool, some in zip(tools, accepted, strict=True))
            for tools in itertools.permutations([*beginning, "", "", ""], len(accepted))
        )
        assert sum(place < end for place in places.values()) == most


@given(
    ranking=st.permutations("abcdefghij"), relevant=st.sets(st.sampled_from("abcxyz"), min_size=1)
)
def test_measures_lie_between_0_and_1_and_recall_grows_with_k(ranking, relevant):
    values = measured(query(*sorted(relevant)), ranking, bound=ranking[:3])
    assert all(0 <= values[name] <= 1 for name in MEASURES[:-1] if name != "bound")
    steps = [values[f"recall@{k}"] for k in (1, 3, 5, 10)]
    assert steps == sorted(steps)
    assert values["completeness@10"] == (values["recall@10"] == 1)


SHOP = [
    make_document("shop_create_order", server="shop"),
    make_document("shop_list_orders", server="shop"),
    make_document("shop_cancel_order", server="shop"),
    make_document("shop_send_mail", server="shop"),
    make_document("shop_search_mail", server="shop"),
    make_document("create_order", server="other"),
    make_document("create_order_form"),
]


def test_siblings_share_a_server_and_a_word_that_is_not_in_most_of_its_names():
    siblings = Siblings(SHOP)
    assert siblings.of("shop/shop_create_order") == {"shop/shop_cancel_order"}
    assert siblings.of("shop/shop_list_orders") == set()
    assert siblings.of("shop/shop_send_mail") == {"shop/shop_search_mail"}
    assert siblings.of("other/create_order") == siblings.of("create_order_form") == set()
    assert siblings
    assert not Siblings(SHOP[5:])


GOLD, SIBLING = "shop/shop_create_order", "shop/shop_cancel_order"


@pytest.mark.parametrize(
    ("ranking", "wrong"),
    [
        ([GOLD, SIBLING], 0.0),
        ([SIBLING, GOLD], 1.0),
        (["other/create_order", GOLD], 0.0),
        (["other/create_order", "x", SIBLING], 1.0),
        (["x"], 0.0),
        ([], 0.0),
    ],
)
def test_a_wrong_sibling_stands_above_its_gold_tool_or_where_that_is_not_found(ranking, wrong):
    assert measured(query(GOLD), ranking, siblings=Siblings(SHOP))["wrong_sibling"] == wrong


def test_a_sibling_that_is_labelled_is_not_wrong():
    siblings = Siblings(SHOP)
    both = measured(query(GOLD, SIBLING), [SIBLING, GOLD], siblings=siblings)
    equal = query(GOLD, alternatives={GOLD: [SIBLING]})
    assert both["wrong_sibling"] == measured(equal, [SIBLING], siblings=siblings)["wrong_sibling"]
    assert both["wrong_sibling"] == 0.0
