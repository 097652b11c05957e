import hashlib
import re

import pytest

from langchain_toolrag.catalogue.names import (
    bound_name,
    clean,
    comparable,
    hashed_name,
    is_bound_name,
    split_words,
)

PROVIDERS_TAKE = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")

ODD_NAMES = {
    "dots": "admin.pumps.status",
    "slashes": "admin/pumps/status",
    "path template": "GET:/pumps/{id}/status",
    "spaces": "pump status",
    "outer spaces": " pump ",
    "65 characters": "mcp__plugin_greenhouse-controller_greenhouse-controller__pump_sta",
    "one long word": "x" * 500,
    "emoji": "🌱_pumps",
    "nothing but emoji": "🌱",
    "Chinese": "水泵状态",
    "Devanagari": "पंप_स्थिति",
    "Arabic": "مضخة_الحالة",
    "accent": "pompe_état",
    "zero-width": "pump\u200b_status",
    "regex characters": "pump[*]?(status)",
    "punctuation": "...",
    "newline": "pump\nstatus",
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list_events", ("list", "events")),
        ("resolve-library-id", ("resolve", "library", "id")),
        ("List Events", ("list", "events")),
        ("listEvents", ("list", "events")),
        ("ListEvents", ("list", "events")),
        ("admin.pumps/status:all", ("admin", "pumps", "status", "all")),
        ("GET:/pumps/{id}/status", ("get", "pumps", "id", "status")),
        ("mcp__green-house__list_pumps", ("mcp", "green", "house", "list", "pumps")),
        ("__init__", ("init",)),
        ("class", ("class",)),
        ("", ()),
        ("...", ()),
    ],
)
def test_a_name_is_split_into_lower_case_words(name, words):
    assert split_words(name) == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("getHTTPResponse", ("get", "http", "response")),
        ("HTTPServerPUMPRestart", ("http", "server", "pump", "restart")),
        ("parseURL", ("parse", "url")),
        ("SQL", ("sql",)),
        ("read_PDF_file", ("read", "pdf", "file")),
    ],
)
def test_an_acronym_is_a_word_of_its_own(name, words):
    assert split_words(name) == words


@pytest.mark.parametrize(
    ("name", "words"),
    [("listPRs", ("list", "prs")), ("getURLsOfPage", ("get", "urls", "of", "page"))],
)
def test_the_plural_of_an_acronym_is_one_word(name, words):
    assert split_words(name) == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("3d_print_start", ("3d", "print", "start")),
        ("v2Beta", ("v2", "beta")),
        ("base64Encode", ("base64", "encode")),
        ("search2", ("search2",)),
    ],
)
def test_a_digit_stays_with_the_letters_before_it(name, words):
    assert split_words(name) == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("पंप_स्थिति", ("पंप", "स्थिति")),
        ("水泵_状态", ("水泵", "状态")),
        ("مضخة_الحالة", ("مضخة", "الحالة")),
        ("pompe_état", ("pompe", "état")),
        ("насос_Статус", ("насос", "статус")),
    ],
)
def test_words_of_every_script_are_kept_whole(name, words):
    assert split_words(name) == words


@pytest.mark.parametrize("name", ["🌱_pumps", "🌡️_pumps", "pumps 👩‍🔧", "➡️pumps"])
def test_an_emoji_is_no_word(name):
    assert split_words(name) == ("pumps",)


@pytest.mark.parametrize("length", [60, 64, 65, 70_000])
def test_words_may_be_long(length):
    word = "a" * length
    assert split_words(f"{word}_b {word}") == (word, "b", word)


@pytest.mark.parametrize("invisible", ["\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060"])
def test_invisible_characters_do_not_part_a_word(invisible):
    assert split_words(f"pu{invisible}mp") == ("pump",)


def test_composed_and_decomposed_letters_are_the_same():
    assert clean("pompe_e\u0301tat") == "pompe_état"


@pytest.mark.parametrize(
    "spelling",
    [
        "list_events",
        "list-events",
        "listEvents",
        "List Events",
        "LIST_EVENTS",
        "list.events",
        "`list_events`",
        "list\u200b_events",
    ],
)
def test_spellings_of_one_name_compare_equal(spelling):
    assert comparable(spelling) == "listevents"


def test_names_of_other_words_compare_different():
    assert comparable("list_events") != comparable("list_event")


def test_letters_compare_without_case_in_every_script():
    assert comparable("STRASSE") == comparable("straße")


@pytest.mark.parametrize("name", ["send_email", "send-email", "sendEmail", "class", "a", "a" * 64])
def test_a_name_that_providers_take_is_bound_as_it_is(name):
    assert bound_name(name) == name


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a.b", "é", "a\n", "水"])
def test_a_name_that_some_provider_refuses_is_no_bound_name(name):
    assert not is_bound_name(name)


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_every_name_gets_a_bound_name_that_providers_take(name):
    assert PROVIDERS_TAKE.match(bound_name(name))


@pytest.mark.parametrize("name", ["pump\ud83d", "\ud83d"])
def test_half_of_a_surrogate_pair_does_not_keep_a_name_from_being_bound(name):
    assert PROVIDERS_TAKE.match(bound_name(name))


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("notes.create", "notes__create"),
        ("admin/pumps/status", "admin__pumps__status"),
        ("a://b", "a__b"),
        ("pump status", "pump_status"),
    ],
)
def test_a_path_or_spaced_name_stays_readable_when_bound(name, bound):
    assert bound_name(name) == bound


def test_what_cannot_be_kept_of_a_name_is_told_apart_by_its_hash():
    digest = hashlib.sha256("pompe_état".encode()).hexdigest()[:8]
    assert bound_name("pompe_état") == f"pompe_etat_{digest}"


def test_names_that_differ_only_in_what_is_cut_are_bound_differently():
    shared = "greenhouse_controller_plugin_for_the_north_wing_zone_pumps_status_"
    read, write = bound_name(shared + "read"), bound_name(shared + "write")
    assert read[:55] == write[:55] == shared[:55]
    assert read != write
    assert len(read) == len(write) == 64


def test_names_without_a_letter_to_keep_are_bound_differently():
    bound = {bound_name(name) for name in ("水泵", "水泵状态", "🌱", "🌵", "!!", "??")}
    assert len(bound) == 6


def test_the_hashed_form_is_not_the_plain_one():
    assert hashed_name("a.b").startswith("a_b_")
    assert hashed_name("a.b") != hashed_name("a/b")
