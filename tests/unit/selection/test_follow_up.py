import math

import pytest
from documents import make_evidence

from langchain_toolrag.selection.conversation import Conversation
from langchain_toolrag.selection.follow_up import (
    asks,
    context_share,
    is_small_talk,
    with_context,
)
from langchain_toolrag.types import Hit, ScoreStatistics

STATISTICS = ScoreStatistics(dense_mean=0.2, dense_deviation=0.1)


class TestSmallTalk:
    @pytest.mark.parametrize(
        "text",
        [
            "hi there",
            "Hello, how are you?",
            "HEY BUDDY!!",
            "Good evening everyone",
            "good night",
            "thank you so much, you have been very helpful",
            "Thx :)",
            "ok cool",
            "That's awesome",
            "That’s great, I’m really happy, wow",
            "haha you are amazing lol",
            "never mind, sorry",
            "bye, see you soon",
        ],
    )
    def test_greetings_thanks_and_acknowledgements_are(self, text):
        assert is_small_talk(text)

    @pytest.mark.parametrize("text", ["", "  \n", "👍", "🎉🎉 ❤️", "👩‍👧", "...", "?!", ":-)", "—"])
    def test_a_text_without_a_word_is(self, text):
        assert is_small_talk(text)

    @pytest.mark.parametrize(
        "text", ["Merci!", "Gracias", "Hola", "Danke", "namaste", "¡hola!", "Ciao"]
    )
    def test_greetings_of_other_languages_are(self, text):
        assert is_small_talk(text)

    @pytest.mark.parametrize(
        "text",
        [
            "good night light on",
            "thanks, now send the email",
            "hello world repository",
            "play Thank You by Dido",
            "translate good morning to French",
            "ok, weather",
            "what time is it, please?",
            "What do I have tomorrow morning?",
            "great barrier reef",
            "sorry, I meant Kolkata",
            "hi_there_bot_start",
            "okay 2",
        ],
    )
    def test_a_request_that_contains_such_words_is_not(self, text):
        assert not is_small_talk(text)

    @pytest.mark.parametrize("text", ["how are you", "what is it", "never", "not now", "go"])
    def test_small_words_without_a_greeting_are_not(self, text):
        assert not is_small_talk(text)

    @pytest.mark.parametrize("text", ["東京の天気", "मौसम", "погода", "الطقس", "7", "2+2"])
    def test_words_of_any_script_and_numbers_are_not(self, text):
        assert not is_small_talk(text)

    @pytest.mark.parametrize("text", ["yes thanks", "sure, great", "please", "Yeah ok!", "fine"])
    def test_consent_is_where_nothing_was_said_and_is_not_where_it_answers(self, text):
        assert is_small_talk(text)
        assert not is_small_talk(text, answering=True)

    @pytest.mark.parametrize("text", ["thanks", "great", "ok", "👍", ""])
    def test_thanks_for_what_was_said_are(self, text):
        assert is_small_talk(text, answering=True)

    @pytest.mark.parametrize(("count", "small"), [(12, True), (13, False)])
    def test_a_long_text_is_not(self, count, small):
        assert is_small_talk("thanks " * count) is small

    def test_case_and_apostrophes_do_not_matter(self):
        for text in ("it's great", "ITS GREAT", "It’s Great"):
            assert is_small_talk(text)


class TestAsks:
    @pytest.mark.parametrize(
        "text",
        [
            "Which city do you mean?",
            "I can send it now. Shall I send it?",
            "Should we go on with the first one?",
            "Do you want it in the evening? I have both.",
            "Would you like a window seat",
            "What about Friday.",
            "どの都市ですか？",
            "أي مدينة؟",
            "Really?)",
        ],
    )
    def test_a_question_does(self, text):
        assert asks(text)

    @pytest.mark.parametrize(
        "text",
        [
            "Please provide the date of departure.",
            "I will need your account number.",
            "I'll need the room.",
            "Please confirm the transfer of 20 euros.",
            "Just confirming: two tickets for Saturday.",
            "Let me know the title.",
            "Please tell me where you are.",
        ],
    )
    def test_an_offer_or_a_confirmation_does(self, text):
        assert asks(text)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "  ",
            "Done.",
            "The mail has been sent to Ann.",
            "It is 12 degrees in Pune.",
            "Your booking is confirmed.",
            "You asked: where? I found it in Pune. It rains.",
        ],
    )
    def test_a_statement_does_not(self, text):
        assert not asks(text)

    @pytest.mark.parametrize(
        "text",
        [
            "The mail is sent. Is there anything else I can help you with?",
            "Anything else?",
            "What else can I do for you?",
            "Would you like something else?",
            "Let me know if there is anything else.",
        ],
    )
    def test_a_closing_question_does_not(self, text):
        assert not asks(text)

    def test_a_question_before_a_closing_one_does(self):
        assert asks("Shall I send it? Or is there anything else?")

    @pytest.mark.parametrize(("after", "is_asked"), [(0, True), (1, True), (2, False)])
    def test_the_last_two_sentences_count(self, after, is_asked):
        assert asks("Which city?" + " It rains." * after) is is_asked


class TestWithContext:
    def test_a_first_request_has_none(self):
        assert with_context(Conversation("weather in Pune")) == ""

    def test_it_is_the_last_turn_and_the_end_of_what_the_assistant_said(self):
        conversation = Conversation("and Kolkata", ("weather in Pune", "a song"), "It rains.")
        assert with_context(conversation) == "and Kolkata. Context: weather in Pune It rains."

    @pytest.mark.parametrize("talk", [("thanks!",), ("👍", "hello", "ok great")])
    def test_small_talk_is_skipped(self, talk):
        conversation = Conversation("and Kolkata", (*talk, "weather in Pune", "a song"))
        assert with_context(conversation) == "and Kolkata. Context: weather in Pune"

    def test_nothing_but_small_talk_is_none(self):
        assert with_context(Conversation("weather in Pune", ("hi", "🙂"))) == ""

    def test_the_assistant_alone_is_context(self):
        conversation = Conversation("Pune", (), "Which city?")
        assert with_context(conversation) == "Pune. Context: Which city?"

    def test_of_a_long_answer_its_end_stays(self):
        said = "Here is all I know. " * 50 + "Which city do you mean?"
        text = with_context(Conversation("Pune", ("weather",), said))
        assert text.endswith("Which city do you mean?")
        assert text == f"Pune. Context: weather {said[-200:]}"

    def test_what_was_pasted_is_left_out_of_both_turns(self):
        pasted = "\n```\nplay(song)\n```"
        conversation = Conversation(f"close the issue{pasted}", (f"open an issue{pasted}",))
        assert with_context(conversation) == "close the issue. Context: open an issue"


def hits(*names, best=0.5):
    return [
        Hit(name, best - rank / 100, rank + 1, make_evidence(name))
        for rank, name in enumerate(names)
    ]


def share(
    query="weather in Pune", said="", plain="abcde", contextual="fghij", best=0.5, spread=STATISTICS
):
    conversation = Conversation(query, ("play a song",), said)
    return context_share(conversation, hits(*plain, best=best), hits(*contextual), spread)


class TestContextShare:
    @pytest.mark.parametrize("best", [-100.0, -1.0, 0.0, 0.2, 0.5, 1.0, 50.0])
    @pytest.mark.parametrize("said", ["", "Which city?"])
    @pytest.mark.parametrize("query", ["weather in Pune", "and Kolkata"])
    @pytest.mark.parametrize("contextual", ["", "abcde", "fghij"])
    def test_it_lies_between_a_fifth_and_one(self, best, said, query, contextual):
        given = share(query, said, best=best, contextual=contextual)
        assert 0.2 <= given <= 1.0

    def test_a_tool_that_stands_out_lowers_it(self):
        shares = [share(best=best) for best in (0.2, 0.3, 0.4, 0.6, 1.0)]
        assert shares == sorted(set(shares), reverse=True)

    def test_each_tool_that_both_find_raises_it(self):
        shares = [share(contextual="abcde"[:n] + "fghij"[n:]) for n in range(6)]
        assert shares == sorted(set(shares))

    def test_of_what_both_find_the_first_five_count_in_any_order(self):
        assert share(plain="abcdex", contextual="fghijx") == share()
        assert share(contextual="edcba") == share(contextual="abcde")

    @pytest.mark.parametrize(
        "query", ["and Kolkata", "What about Kolkata", "YES", "same for Kolkata", "no, Kolkata"]
    )
    def test_a_beginning_like_a_continuation_raises_it(self, query):
        assert share(query) > share("Kolkata")

    @pytest.mark.parametrize("query", ["andromeda", "orders of today", "butter", "songs like this"])
    def test_a_beginning_that_only_looks_like_one_does_not(self, query):
        assert share(query) == share("Kolkata")

    @pytest.mark.parametrize("said", ["Which city?", "Please provide the city."])
    def test_a_question_raises_it(self, said):
        assert share(said=said) > share()

    def test_a_statement_and_a_closing_question_do_not(self):
        assert share(said="It rains.") == share(said="Anything else?") == share()

    def test_a_request_that_finds_nothing_has_no_tool_that_stands_out(self):
        assert share(plain="") == share(best=STATISTICS.dense_mean)

    @pytest.mark.parametrize("deviation", [0.0, 0.1])
    def test_scores_without_variance_are_no_prominence(self, deviation):
        given = share(spread=ScoreStatistics(0.5, deviation))
        assert math.isfinite(given)
        assert given == pytest.approx(share(best=STATISTICS.dense_mean))
