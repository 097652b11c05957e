import pytest
from documents import make_document, make_evidence

from langchain_toolrag.linting.retrieval import first_sentence, not_self_retrieving
from langchain_toolrag.types import Hit

PLAY = make_document(
    "play_song", "Plays music. Loud, on every speaker.", "music", parameters=("id",)
)
OTHERS = [make_document(name, "Plays music", "music") for name in ("a", "b", "c", "d")]


def searching(*names):
    """A search that always finds the same and keeps what it was asked."""
    asked = []

    def search(query, k):
        asked.append((query, k))
        found = enumerate(names[:k], 1)
        return [Hit(name, 1 / rank, rank, make_evidence(name)) for rank, name in found]

    return search, asked


def found(search, *, twins=None, skipped=(), documents=(PLAY, *OTHERS), progress=None):
    skipped = {*skipped, *(document.id for document in OTHERS)}
    return list(not_self_retrieving(documents, search, twins or {}, skipped, progress))


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Plays music. Loud.", "Plays music"),
        ("Plays music", "Plays music"),
        ("Plays music, e.g. songs. Loud.", "Plays music, e.g. songs"),
        ("Plays version 2.5 of it! Loud.", "Plays version 2.5 of it"),
        ("Plays music\n\nArgs: id", "Plays music"),
        ("Plays music\non speakers. Loud", "Plays music\non speakers"),
        ("播放音乐。声音很大。", "播放音乐"),
        ("", ""),
    ],
)
def test_the_first_sentence_ends_at_a_full_stop_or_an_empty_line(description, sentence):
    assert first_sentence(description) == sentence


def test_a_tool_behind_three_others_is_found_with_their_ids():
    search, asked = searching("music/a", "music/b", "music/c", "music/play_song")
    (finding,) = found(search)
    assert finding.tool == "music/play_song"
    assert finding.others == ("music/a", "music/b", "music/c")
    assert '"Plays music" finds music/a, music/b and music/c before it' in finding.message
    assert asked == [("Plays music", 3)]


def test_a_tool_among_the_first_three_is_fine():
    search, _ = searching("music/a", "music/b", "music/play_song")
    assert found(search) == []


def test_near_twins_are_not_counted_against_each_other():
    search, asked = searching("music/a", "music/b", "music/c", "music/play_song")
    assert found(search, twins={"music/play_song": ["music/b"]}) == []
    assert asked == [("Plays music", 4)]


def test_tools_whose_descriptions_say_nothing_are_not_searched_for():
    search, asked = searching("music/a", "music/b", "music/c")
    assert found(search, skipped={"music/play_song"}) == []
    assert asked == []


def test_the_suggestion_names_words_that_only_this_tool_has():
    search, _ = searching("music/a", "music/b", "music/c")
    (finding,) = found(search)
    assert finding.suggestion.endswith('such as "song", "loud", "every"')


def test_a_server_that_is_not_named_is_suggested_where_the_others_are_of_others():
    others = [make_document(name, "Plays music", "radio") for name in ("a", "b", "c")]
    search, _ = searching("radio/a", "radio/b", "radio/c")
    skipped = {document.id for document in others}
    (finding,) = found(
        search, documents=(make_document("play", "Plays it", "hifi"), *others), skipped=skipped
    )
    assert 'name "hifi"' in finding.suggestion


def test_a_tool_with_no_word_of_its_own_is_asked_to_say_something():
    tool = make_document("play", "Plays music")
    search, _ = searching("music/a", "music/b", "music/c")
    (finding,) = found(search, documents=(tool, *OTHERS))
    assert "what it does that the others do not" in finding.suggestion


def test_a_sentence_that_finds_nothing_is_said_to_have_no_word():
    search, _ = searching()
    (finding,) = found(search)
    assert finding.others == ()
    assert finding.message == '"Plays music" has no word to be found by'


def test_the_operators_of_a_query_are_no_operators_in_a_sentence():
    search, asked = searching("play", "votes")
    documents = (make_document("play", "Select: a song to play"), make_document("votes", "+one it"))
    assert found(search, documents=documents) == []
    assert [query.strip() for query, _ in asked] == ["a song to play", "one it"]


def test_progress_counts_every_tool():
    seen = []
    search, _ = searching("music/play_song")
    found(search, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
