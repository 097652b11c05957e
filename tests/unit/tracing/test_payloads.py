"""What is shown where payloads are left out by policy."""

import json

import pytest
from conversations import turn, user

from langchain_toolrag import SelectionOptions
from langchain_toolrag.errors import EmbeddingError

SECRET = "quetzalcoatl"
REQUEST = f"weather in {SECRET} city"
HISTORY = [*turn(f"lamp of {SECRET}", "turn_on_light"), user(REQUEST)]
DESCRIPTION = "warm or cold"
RAISE = SelectionOptions(on_error="raise")


@pytest.fixture
def discreet(with_tracing, telemetry):
    """Make a ToolRAG that shows no payloads."""

    def make(**given):
        return with_tracing(telemetry.tracing(payloads=False), **given)

    return make


@pytest.fixture
def shown(telemetry, recorder, collector):
    """Return everything that anybody was told, as text."""

    def text():
        spans = [span.to_json() for span in telemetry.spans]
        metrics = telemetry.reader.get_metrics_data()
        runs = [
            repr((run.inputs, run.outputs, run.error, run.extra, run.tags, run.events))
            for run in collector.traced_runs
        ]
        errors = [repr(vars(part)) for _, args, _ in recorder.calls for part in args if _is(part)]
        return "\n".join(
            [*spans, metrics.to_json() if metrics else "", *runs, *errors, repr(recorder.calls)]
        )

    return text


def _is(part):
    return isinstance(part, BaseException)


@pytest.fixture(params=["sync", "async"])
def ask(request, recorder, collector):
    """Select, or search, with somebody listening: `await ask(rag, "select", ...)`."""
    config = {"callbacks": [recorder, collector]}

    async def do(rag, what, *args, **given):
        if request.param == "async":
            return await getattr(rag, f"a{what}")(*args, config=config, **given)
        return getattr(rag, what)(*args, config=config, **given)

    return do


class TestWithoutPayloads:
    async def test_no_word_of_the_user_or_of_a_description_is_shown(self, discreet, ask, shown):
        rag = discreet()
        first = await ask(rag, "select", HISTORY)
        await ask(rag, "select", HISTORY, previous=first.state)
        await ask(rag, "find", REQUEST)
        await ask(rag, "find", f"select:get_weather,{SECRET}")
        assert "get_weather" in shown()
        assert SECRET not in shown()
        assert DESCRIPTION not in shown()
        assert first.turn_id not in shown()  # A digest of words, which can be guessed from it.

    async def test_ids_scores_reasons_and_counts_stay(self, discreet, ask, telemetry, collector):
        selection = await ask(discreet(), "select", HISTORY)
        (run,) = collector.traced_runs
        first = run.outputs["documents"][0]
        assert run.inputs == {"query": ""}
        assert (first.id, first.page_content) == ("weather/get_weather", "")
        assert first.metadata["score"] == selection.scores["get_weather"]
        assert first.metadata["reason"] == selection.reasons["get_weather"]
        assert run.extra["metadata"]["toolrag.bound"] == len(selection.tools)
        (span,) = telemetry.spans
        assert "gen_ai.retrieval.query.text" not in span.attributes
        shown = json.loads(span.attributes["gen_ai.retrieval.documents"])
        assert [tool["id"] for tool in shown] == selection.ids

    async def test_names_that_no_tool_has_are_counted(self, discreet, ask, collector):
        await ask(discreet(), "find", f"select:get_weather,{SECRET}")
        assert collector.traced_runs[0].extra["metadata"]["toolrag.missing"] == 1

    async def test_a_message_of_an_error_that_quotes_the_user_is_not_shown(
        self, discreet, ask, shown, telemetry, collector, quoting
    ):
        rag = discreet(embeddings=quoting, options=RAISE)
        with pytest.raises(EmbeddingError, match=SECRET):
            await ask(rag, "select", HISTORY)
        assert SECRET not in shown()
        assert "EmbeddingError" in collector.traced_runs[0].error
        (event,) = telemetry.spans[0].events
        assert dict(event.attributes) == {
            "exception.type": "langchain_toolrag.errors.EmbeddingError"
        }

    @pytest.mark.parametrize("what", ["select", "find"])
    async def test_a_degraded_answer_says_what_it_was_made_of_and_not_why(
        self, discreet, ask, shown, collector, quoting, what
    ):
        answer = await ask(discreet(embeddings=quoting), what, REQUEST)
        assert SECRET in answer.degraded
        assert SECRET not in shown()
        (run,) = collector.traced_runs
        assert run.extra["metadata"]["toolrag.degraded"] == "lexical instead"

    async def test_a_stored_state_that_says_anything_else_is_not_believed(
        self, discreet, ask, shown, collector
    ):
        rag = discreet()
        state = {**rag.select(HISTORY).state, "degraded": SECRET}
        assert (await ask(rag, "select", HISTORY, previous=state)).degraded == SECRET
        assert SECRET not in shown()
        assert "toolrag.degraded" not in collector.traced_runs[0].extra["metadata"]


async def test_with_payloads_the_words_are_everywhere(
    with_tracing, ask, shown, telemetry, collector
):
    selection = await ask(with_tracing(), "select", HISTORY)
    (run,) = collector.traced_runs
    assert run.inputs == {"query": REQUEST}
    assert run.extra["metadata"]["toolrag.query"] == selection.query
    assert DESCRIPTION in run.outputs["documents"][0].page_content
    assert telemetry.spans[0].attributes["gen_ai.retrieval.query.text"] == selection.query
    assert SECRET in shown()
