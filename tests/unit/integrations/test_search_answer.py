"""What a model is told of its search."""

import re

import pytest
from documents import make_evidence
from fakes import HashingEmbeddings, make_catalogue, make_tool
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_toolrag import ToolRAG
from langchain_toolrag.integrations.search_answer import FRUITLESS_KEY, TRIES, Known, answer
from langchain_toolrag.selection.conversation import LOADED_KEY
from langchain_toolrag.types import Finding, Hit

SONG, LAMP = "music/play_song", "home/turn_on_light"
LONG_NAME = "a_tool_whose_name_is_as_long_as_any_provider_takes_it_which_is__"
LONG_TEXT = "It does a great many things at once, none of which it can say in a few words; " * 9
SERVER = "the_server_of_long_names"
WEAK, NOTHING = 0.3, 0.1  # Confidences below which an answer says so.
ORDINARY = ToolRAG(make_catalogue(), embeddings=HashingEmbeddings()).catalogue.entries
LONG = ToolRAG(
    [make_tool(f"{LONG_NAME[:-2]}{n:02d}", LONG_TEXT, server=SERVER) for n in range(40)],
    embeddings=HashingEmbeddings(),
).catalogue.entries

laws = settings(derandomize=True, deadline=None, max_examples=200)


def finding(*ids, confidence=0.9, **fields):
    hits = [Hit(i, 1.0 / rank, rank, make_evidence(i)) for rank, i in enumerate(ids, start=1)]
    return Finding(tuple(hits), confidence=confidence, **fields)


def told(found, query="do something", entries=ORDINARY, **known):
    return answer(query, found, Known(entries, **known))


def text_of(found, query="do something", entries=ORDINARY, **known):
    return told(found, query, entries, **known)[0]


class TestFound:
    def test_each_new_tool_has_a_line_with_its_first_sentence(self):
        text, artifact = told(finding(SONG, LAMP))
        assert text == (
            "Available from your next step:\n"
            "- play_song: Plays a song on the speakers.\n"
            "- turn_on_light: Switches a lamp on."
        )
        assert artifact == {LOADED_KEY: [SONG, LAMP], FRUITLESS_KEY: False}

    @pytest.mark.parametrize(
        ("description", "line"),
        [
            ("", "- do_it"),
            ("  \n ", "- do_it"),
            ("One. Two. Three.", "- do_it: One."),
            ("One!\n\nArgs:\n    x: Two.", "- do_it: One!"),
            ("Takes 1.5 s, e.g.", "- do_it: Takes 1.5 s, e.g."),
            ("No end\nand more", "- do_it: No end"),
        ],
    )
    def test_a_line_says_the_first_sentence_of_a_description(self, description, line):
        tools = [make_tool("do_it", description)]
        entries = ToolRAG(tools, embeddings=HashingEmbeddings()).catalogue.entries
        assert text_of(finding("do_it"), entries=entries).splitlines()[1] == line

    def test_a_tool_that_is_bound_already_is_named_apart_and_loaded_again(self):
        text, artifact = told(finding(SONG, LAMP), bound={SONG})
        assert text == (
            "Available from your next step:\n"
            "- turn_on_light: Switches a lamp on.\n"
            "Already available: play_song."
        )
        assert artifact[LOADED_KEY] == [SONG, LAMP]

    def test_where_all_are_bound_already_nothing_is_promised(self):
        text = text_of(finding(SONG, LAMP), bound={SONG, LAMP})
        assert text == "Already available: play_song, turn_on_light."

    def test_a_tool_that_left_the_catalogue_meanwhile_is_not_named(self):
        text, artifact = told(finding("gone", SONG))
        assert "gone" not in text
        assert artifact[LOADED_KEY] == [SONG]

    def test_a_degraded_search_says_so(self):
        text = text_of(finding(SONG, confidence=None, degraded="the model server is down"))
        assert text.endswith("Searched by words alone.")
        assert "server is down" not in text

    def test_no_confidence_is_no_weakness(self):
        text, artifact = told(finding(SONG, confidence=None))
        assert text.startswith("Available")
        assert not artifact[FRUITLESS_KEY]


class TestMissing:
    def test_missing_names_are_told_with_the_closest(self):
        text, artifact = told(finding(SONG, missing=("send_emial",)), "select:play_song,send_emial")
        assert text.splitlines()[-1].startswith("No tool is named send_emial. Closest: send_email")
        assert artifact == {LOADED_KEY: [SONG], FRUITLESS_KEY: False}

    def test_closest_names_are_found_in_any_case(self):
        assert "Closest: send_email" in text_of(finding(missing=("SEND_EMIAL",), confidence=0.0))

    def test_names_that_are_like_none_have_no_closest(self):
        text = text_of(finding(missing=("xyzzy",), confidence=0.0))
        assert text.startswith("No tool is named xyzzy. ")
        assert "Closest" not in text

    def test_of_many_missing_names_a_few_are_told(self):
        many = tuple(f"teleport_{n}" for n in range(300))
        text = text_of(finding(missing=many, confidence=0.0))
        assert "No tool is named teleport_0, teleport_1, teleport_2 and 297 more." in text
        assert "Search once more" in text

    def test_a_missing_name_as_long_as_a_book_is_cut(self):
        text = text_of(finding(missing=("x" * 5_000,), confidence=0.0))
        assert len(text) < 600
        assert "Search once more" in text


class TestServers:
    def test_the_rest_of_a_server_is_named_or_counted(self):
        entries = ToolRAG(
            [make_tool(f"board_{n}", "Shows it.", server="Jira") for n in range(9)],
            embeddings=HashingEmbeddings(),
        ).catalogue.entries
        found = [f"Jira/board_{n}" for n in range(5)]
        assert text_of(finding(*found, server="jira"), entries=entries).splitlines()[-1] == (
            "Also of Jira: board_5, board_6, board_7 and 1 more (select:NAME loads one)."
        )

    def test_servers_in_names_alone_are_servers_too(self):
        entries = ToolRAG(
            [make_tool(f"mcp__jira__board_{n}", "Shows it.") for n in range(7)],
            embeddings=HashingEmbeddings(),
        ).catalogue.entries
        text = text_of(finding("mcp__jira__board_0", server="jira"), entries=entries)
        assert "Also of jira: mcp__jira__board_1" in text
        assert "and 3 more" in text

    def test_a_server_that_was_found_whole_has_no_rest(self):
        found = finding(SONG, "music/skip_to_next_track", server="music")
        assert "Also of" not in text_of(found)

    def test_a_listing_of_long_names_is_never_cut_within_a_name(self):
        found = finding(*list(LONG)[:5], server="theserveroflongnames")
        text = text_of(found, entries=LONG)
        names = {entry.document.bound_name for entry in LONG.values()}
        assert set(re.findall(r"a_tool_[a-z0-9_]+", text)) <= names
        assert "35 more" in text or "34 more" in text or "33 more" in text
        assert not text.endswith("…")


class TestWeak:
    def test_a_weak_match_is_offered_as_one(self):
        text, artifact = told(finding(SONG, confidence=WEAK))
        assert text.startswith("No close match; the nearest, which may not do it, are available")
        assert "play_song" in text
        assert artifact == {LOADED_KEY: [SONG], FRUITLESS_KEY: True}

    def test_the_second_weak_match_says_that_it_is_the_last(self):
        text, artifact = told(finding(SONG, confidence=WEAK), tries=TRIES - 1)
        assert text.startswith(
            "Again no close match. If none of these does it there is no such tool"
        )
        assert "play_song" in text
        assert artifact == {LOADED_KEY: [SONG], FRUITLESS_KEY: True}

    @pytest.mark.parametrize(
        ("places", "said"),
        [
            (1, "Only 1 tool can be available at once; not these: "),
            (0, "No tool more can be made available, the others take all places; not these: "),
        ],
    )
    def test_what_there_is_no_place_for_is_named_and_not_loaded(self, places, said):
        found = finding(*list(LONG)[:3])
        text, artifact = told(found, entries=LONG, places=places)
        assert said in text
        assert len(artifact[LOADED_KEY]) == places
        assert not artifact[FRUITLESS_KEY]

    def test_after_two_fruitless_tries_a_weak_match_is_none(self):
        text, artifact = told(finding(SONG, confidence=WEAK), tries=TRIES)
        assert text.startswith("Again no tool fits")
        assert artifact == {LOADED_KEY: [], FRUITLESS_KEY: True}

    def test_a_good_match_counts_after_any_number_of_tries(self):
        text, artifact = told(finding(SONG), tries=9)
        assert text.startswith("Available")
        assert artifact == {LOADED_KEY: [SONG], FRUITLESS_KEY: False}


class TestNothing:
    def test_it_says_how_to_go_on(self):
        text, artifact = told(finding(confidence=0.0), "send_emial", tries=0)
        assert text.startswith("No tool fits 'send_emial'.")
        assert "Closest names: send_email" in text
        assert "Servers: weather, calendar, mail, github, music." in text
        assert "Search once more in other words, or load a tool by name with select:NAME." in text
        assert artifact == {LOADED_KEY: [], FRUITLESS_KEY: True}

    def test_what_hardly_fits_is_named_and_not_loaded(self):
        text, artifact = told(finding(SONG, confidence=NOTHING))
        assert text.startswith("No tool fits")
        assert "play_song" in text
        assert artifact == {LOADED_KEY: [], FRUITLESS_KEY: True}

    def test_a_long_query_is_cut(self):
        text = text_of(finding(confidence=0.0), "please " * 1_000)
        assert len(text.split("'")[1]) <= 60

    def test_the_second_time_it_says_that_there_is_no_such_tool(self):
        text, artifact = told(finding(confidence=0.0), "teleport", tries=1)
        assert text == (
            "Again no tool fits 'teleport'. There is no such tool: do not search for it any more, "
            "go on with the tools you have or say that it cannot be done."
        )
        assert artifact == {LOADED_KEY: [], FRUITLESS_KEY: True}

    def test_servers_that_are_missing_are_told_with_the_reason(self):
        text = text_of(
            finding(confidence=0.0),
            unavailable={"notion": "still connecting", "slack": "the token has expired " * 20},
        )
        assert "Not available now: notion (still connecting), slack (the token has" in text
        assert "…)" in text

    def test_many_missing_servers_are_counted_rather_than_cut(self):
        down = {f"server_{n}_of_a_long_name": "still connecting to it" for n in range(50)}
        text = text_of(finding(confidence=0.0), unavailable=down)
        assert "50 servers are not available now." in text
        assert "Search once more" in text
        assert len(text) < 600

    def test_a_degraded_search_says_so(self):
        assert "Searched by words alone." in text_of(finding(degraded="down", confidence=None))

    def test_nothing_is_named_where_the_caller_may_see_no_tool(self):
        text = text_of(finding(SONG, confidence=0.9), entries={})
        assert text == (
            "No tool fits 'do something'. "
            "Search once more in other words, or load a tool by name with select:NAME."
        )


findings = st.builds(
    finding,
    *[st.sampled_from(list(LONG))] * 5,
    confidence=st.sampled_from([None, 0.0, WEAK, 0.9]),
    missing=st.lists(st.text(max_size=90), max_size=40).map(tuple),
    server=st.sampled_from(["", "theserveroflongnames"]),
    degraded=st.sampled_from(["", "the model server is down"]),
)


@laws
@given(
    findings,
    st.text(max_size=500),
    st.integers(0, 3),
    st.sets(st.sampled_from(list(LONG))),
    st.dictionaries(st.text(max_size=70), st.text(max_size=300), max_size=30),
)
def test_an_answer_of_up_to_five_tools_stays_under_600_characters(
    found, query, tries, bound, unavailable
):
    text, artifact = told(found, query, LONG, tries=tries, bound=bound, unavailable=unavailable)
    assert 0 < len(text) < 600
    assert set(artifact[LOADED_KEY]) <= {hit.id for hit in found.hits}


@pytest.mark.parametrize("number", [6, 10, 20])
def test_each_further_tool_adds_a_line(number):
    text = text_of(finding(*list(LONG)[:number]), entries=LONG)
    assert len(text.splitlines()) == number + 1
    assert len(text) < 600 + 90 * (number - 5)


def test_every_tool_that_is_loaded_is_named():
    for number in range(1, 21):
        ids = list(LONG)[:number]
        text, artifact = told(finding(*ids), entries=LONG)
        assert artifact[LOADED_KEY] == ids
        assert all(LONG[identity].document.bound_name in text for identity in ids)


def test_tools_that_are_bound_already_are_all_named_too():
    ids = list(LONG)[:20]
    text, artifact = told(finding(*ids), entries=LONG, bound=set(ids))
    assert artifact[LOADED_KEY] == ids
    assert text.startswith("Already available: ")
    assert all(LONG[identity].document.bound_name in text for identity in ids)
