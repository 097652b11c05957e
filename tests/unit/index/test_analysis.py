from concurrent.futures import ThreadPoolExecutor

import pytest

from langchain_toolrag.index.analysis import STOP_WORDS, fold_accents, query_terms, terms


def test_identifiers_are_split():
    assert terms("getHTTPResponse send_email") == ["get", "http", "respons", "send", "email"]


@pytest.mark.parametrize(
    "forms",
    [("weather", "weathers"), ("create", "creating", "created"), ("list", "lists", "listing")],
)
def test_forms_of_a_word_have_one_term(forms):
    assert len({tuple(terms(form)) for form in forms}) == 1


def test_a_term_is_repeated_as_often_as_its_word():
    assert terms("email, Email; emails") == ["email", "email", "email"]


@pytest.mark.parametrize("length", [64, 65, 70_000])
def test_words_may_be_long(length):
    number = "7" * length
    assert terms(f"{number} emails {number}") == [number, "email", number]


def test_stop_words_are_left_out():
    assert terms("Could you please send it to me?") == ["send"]


def test_a_text_of_stop_words_has_no_terms():
    assert terms("what is it and why") == []


def test_words_that_tell_tools_apart_are_no_stop_words():
    assert not STOP_WORDS & {"get", "list", "create", "delete", "update", "search", "off", "up"}


@pytest.mark.parametrize("text", ["", "   ", "...", "🌱", "\u200b"])
def test_a_text_without_words_has_no_terms(text):
    assert terms(text) == []


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("水泵状态", ["水泵", "泵状", "状态"]),
        ("水", ["水"]),
        ("カレンダー", ["カレ", "レン", "ンダ", "ダー"]),
        ("날씨 알려줘", ["날씨", "알려", "려줘"]),
        ("อากาศ", ["อา", "าก", "กา", "าศ"]),
    ],
)
def test_scripts_without_spaces_become_pairs_of_characters(text, pairs):
    assert terms(text) == pairs


def test_a_word_of_two_scripts_is_parted():
    assert terms("查询pdf文件") == ["查询", "pdf", "文件"]


def test_wide_letters_are_read_as_plain_ones():
    assert terms("ＰＤＦ") == ["pdf"]


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("état", "etat"),
        ("e\u0301tat", "etat"),
        ("São Paulo", "Sao Paulo"),
        ("ёлка", "елка"),
        ("ώρα", "ωρα"),
    ],
)
def test_accents_are_taken_off(text, folded):
    assert fold_accents(text) == folded


@pytest.mark.parametrize("text", ["स्थिति", "が", "날씨", "مضخة", "plain", "ø"])
def test_marks_that_are_letters_of_their_own_stay(text):
    assert fold_accents(text) == text


def test_a_query_without_accents_has_the_terms_of_a_text_with_them():
    assert terms("Température à Québec") == terms("temperature a quebec")


def test_words_of_other_scripts_are_kept_whole():
    assert terms("मौसम की स्थिति") == ["मौसम", "की", "स्थिति"]


def test_raw_terms_are_what_stands_between_white_space():
    assert terms("Could YOU send_email, please?", "raw") == [
        "could",
        "you",
        "send_email,",
        "please?",
    ]


def test_threads_do_not_disturb_each_others_stems():
    words = [f"running{'ly' * (number % 7)} {number}" for number in range(400)]
    alone = [terms(word) for word in words]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(terms, words)) == alone


def test_a_word_that_a_query_repeats_counts_once_in_order_of_appearance():
    assert query_terms("Book the flight, then book a hotel near the flights") == [
        "book",
        "flight",
        "hotel",
        "near",
    ]


def test_raw_a_query_repeats_its_words_as_in_toolrag():
    assert query_terms("book a book", "raw") == ["book", "a", "book"]
