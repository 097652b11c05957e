import pytest
from documents import make_document

from langchain_toolrag.linting.descriptions import long_descriptions, poor_descriptions


def codes(name, description):
    return [finding.code for finding in poor_descriptions([make_document(name, description)])]


def test_no_description_is_found():
    assert codes("play_song", "") == ["no-description"]


@pytest.mark.parametrize(
    "description",
    [
        "TODO",
        "todo: say what it does, to which songs",
        "FIXME later, when the speakers work",
        "A tool",
        "Tool 1",
        "description",
        "No description available.",
        "Lorem ipsum dolor sit amet",
        "N/A",
        "Get details",
        "...",
        "🎵",
    ],
)
def test_a_placeholder_is_found(description):
    assert codes("play_song", description) == ["placeholder-description"]


@pytest.mark.parametrize("description", ["Music", "Musics the music.", "This is for music", "音乐"])
def test_one_word_to_be_found_by_is_too_short(description):
    assert codes("play_song", description) == ["short-description"]


@pytest.mark.parametrize(
    "description", ["Play song", "Plays a song.", "This tool plays songs", "Play", "play_song"]
)
def test_a_description_that_repeats_the_name_is_found(description):
    assert codes("play_song", description) == ["repeats-name"]


@pytest.mark.parametrize(
    "description", ["Plays a song on the speakers", "播放一首歌曲", "Todoist tasks of today"]
)
def test_a_description_that_adds_to_the_name_is_fine(description):
    assert codes("play_song", description) == []


def test_running_tests_is_no_placeholder():
    assert codes("run_tests", "Runs the unit tests of the project.") == []


def test_a_long_description_is_quoted_in_part():
    words = "todo " * 40
    (finding,) = poor_descriptions([make_document("play_song", words)])
    assert '..."' in finding.message
    assert len(finding.message) < 120


def test_a_description_longer_than_the_model_reads_is_found():
    sentence = "Plays a song on the speakers of a room. "
    within, beyond = make_document("a", sentence * 20), make_document("b", sentence * 30)
    (finding,) = long_descriptions([within, beyond])
    assert finding.tool == "b"
    assert "about 330 word pieces" in finding.message


def test_every_character_of_a_script_without_spaces_counts():
    assert [finding.tool for finding in long_descriptions([make_document("a", "播放" * 130)])]
