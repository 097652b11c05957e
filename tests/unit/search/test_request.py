import pytest

from langchain_toolrag.search.request import parts_of, request_in

ASK = "open an issue about it"
LOG = "2026-01-05 10:00:01 ERROR lamp failed\nWARN retrying\n[12:00:01] song stopped"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3\n    at a.b.C(D.java:3)'
PAYLOADS = {
    "code": "```python\nsend_email(song)\n\nplay()\n```",
    "code that does not end": "```\nsend_email(song)",
    "context": "<context>the weather is fine</context>",
    "document with attributes": '<Document id="3">\nthe weather\nis fine\n</Document>',
    "quoted mail": "> the weather is fine\n > and the song too",
    "mail headers": "From: Ann\nTo: Bob\nSubject: weather\nDate: today\nFwd: song",
    "an object": '{"song": "' + "la " * 50 + '"}',
    "a list": "[" + "1, " * 50 + "2]",
    "log": LOG,
    "traceback": TRACEBACK,
    "a quotation": '"the weather is fine today"',
    "a typographic quotation": "“the weather is fine today”",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
class TestPayload:
    def test_it_is_left_out_after_the_request(self, payload):
        assert request_in(f"{ASK}\n{payload}").split() == ASK.split()

    def test_nothing_but_payload_is_kept(self, payload):
        assert request_in(payload) == payload.strip()


def test_payload_is_left_out_from_between_two_requests():
    given = f"open an issue\n{PAYLOADS['code']}\n{LOG}\nand tell Ann"
    assert request_in(given).split() == ["open", "an", "issue", "and", "tell", "Ann"]


def test_payloads_of_many_kinds_are_left_out_together():
    given = "\n".join([ASK, PAYLOADS["code"], PAYLOADS["quoted mail"], LOG, PAYLOADS["an object"]])
    assert request_in(given).split() == ASK.split()


@pytest.mark.parametrize("kind", ["text", "body", "message"])
def test_what_a_message_is_to_say_is_left_out(kind):
    given = f"mail Ann with the {kind}: play a song\nin the evening"
    assert request_in(given) == f"mail Ann with the {kind}"


@pytest.mark.parametrize(
    "request_text",
    [
        "weather in Pune",
        "play 'Yesterday' now",
        'open "to do" list',
        "what's Ann's and Bob's address, that isn't hers",
        "is 3 > 2 and 2 < 3",
        "set {x} to [1, 2]",
        "meet at 10:30, from: home",
        "use `ls` to list",
        "select:play_song,send_email",
        "+calendar meeting",
        "東京の天気",
        "👍",
        "",
    ],
)
def test_a_short_request_stays_as_it_is(request_text):
    assert request_in(request_text) == request_text


def test_space_around_it_is_left_out():
    assert request_in("\n  weather in Pune\t ") == "weather in Pune"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("open https://example.org/a?b=c#d now", "open url now"),
        ("http://a.b and https://c.d/e", "url and url"),
        ("https://example.org", "url"),
        ("open example.org", "open example.org"),
    ],
)
def test_an_address_becomes_a_word(given, kept):
    assert request_in(given) == kept


def test_of_a_long_text_the_ends_stay():
    middle = [f"Sentence {n} is about nothing at all." for n in range(30)]
    given = " ".join(["Open an issue.", "Do it now.", *middle, "Thank you.", "Tell Ann."])
    assert request_in(given) == "Open an issue. Do it now. Thank you. Tell Ann."


def test_sixty_words_are_not_long():
    text = "Rain. " * 60
    assert request_in(text) == text.strip()
    assert request_in(text + "Rain.") == "Rain. Rain. Rain. Rain."


def test_of_an_endless_sentence_the_ends_stay():
    words = [f"w{n}" for n in range(1000)]
    assert request_in(" ".join(words)).split() == [*words[:20], *words[-20:]]


def test_the_ends_of_a_megabyte_stay():
    kept = request_in("open an issue. " + "lamp song rain. " * 70_000 + "tell Ann today.")
    assert kept.startswith("open an issue. ")
    assert kept.endswith(" tell Ann today.")
    assert len(kept.split()) <= 160


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "\n",
        ">",
        "`",
        '"',
        "'a ",
        '"a b ',
        "<data>",
        "<data ",
        "[",
        "{a",
        "?",
        "and ",
        "“x ",
    ],
)
def test_a_megabyte_of_anything_is_read_to_its_end(unit):
    text = unit * (1_000_000 // len(unit))
    kept = request_in(text)
    assert len(kept) <= 8_001
    assert len(parts_of(kept)) <= 4


@pytest.mark.parametrize(
    ("request_text", "parts"),
    [
        ("play a song and send the mail now", ["play a song", "send the mail now"]),
        ("Play a song. Send the mail!", ["Play a song.", "Send the mail!"]),
        ("play a song\nsend the mail", ["play a song", "send the mail"]),
        ("play a song, then please send the mail", ["play a song", "send the mail"]),
        ("play a song; send the mail", ["play a song;", "send the mail"]),
        ("play a song AND THEN ALSO send the mail", ["play a song", "send the mail"]),
        ("play a song, but send the mail first", ["play a song", "send the mail first"]),
        ("曲を 再生 して。 メールを 送信 して。", ["曲を 再生 して。", "メールを 送信 して。"]),
    ],
)
def test_parts_end_with_a_sentence_a_line_or_an_and(request_text, parts):
    assert parts_of(request_text) == parts


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        " \n ",
        "and",
        "and and and",
        "play a song",
        "weather in Pune and Kolkata",
        "salt and pepper",
        "play a song and stop it",
        "Hi Ann. Play a song.",
        "show the brand android sandbox",
        "version 1.2 of the app",
    ],
)
def test_a_request_for_one_thing_has_no_parts(request_text):
    assert parts_of(request_text) == []


def test_there_are_four_parts_at_most():
    parts = [f"play song number {n}" for n in range(9)]
    assert parts_of(" and ".join(parts)) == parts[:4]
