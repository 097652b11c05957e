import json

import pytest

from langchain_toolrag.errors import SourceError
from langchain_toolrag.learning.pairs import Request, read_pairs


def tool(identity, **fields):
    name = identity.rpartition(":")[2]
    return {"id": identity, "name": name, "description": f"Does {name}.", **fields}


def pair(query, *relevant, **fields):
    return {"query": query, "relevant": list(relevant), **fields}


def many(*pairs, count=20):
    """So many pairs as are needed, the given ones first."""
    return [*pairs, *(pairs[-1] for _ in range(count - len(pairs)))]


@pytest.fixture
def read(tmp_path):
    """Write both files and read them."""

    def reading(pairs, tools, **options):
        for name, lines in (("pairs", pairs), ("tools", tools)):
            text = "\n".join(
                line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)
                for line in lines
            )
            (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return read_pairs(tmp_path / "pairs.jsonl", tmp_path / "tools.jsonl", **options)

    return reading


class TestSets:
    def test_without_names_there_is_one_set(self, read):
        (only,) = read(many(pair("write a mail", "send")), [tool("send"), tool("play")])
        assert only.name == ""
        assert [document.name for document in only.documents] == ["send", "play"]
        assert only.requests == (Request("write a mail", frozenset({0})),) * 20

    def test_a_set_is_named_by_set_in_both_files(self, read):
        pairs = many(pair("a", "send", set="mail"), pair("b", "play", set="music"))
        tools = [tool(name, set="mail") for name in ("send", "read")]
        tools += [tool(name, set="music") for name in ("play", "stop")]
        mail, music = read(pairs, tools)
        assert (mail.name, music.name) == ("mail", "music")
        assert [document.name for document in mail.documents] == ["send", "read"]
        assert [document.name for document in music.documents] == ["play", "stop"]
        assert (len(mail.requests), len(music.requests)) == (1, 19)

    def test_a_tools_set_is_known_by_the_prefix_of_its_id(self, read):
        pairs = many(pair("a", "mail:send", set="mail"), pair("b", "music:play", set="music"))
        tools = [tool(each) for each in ("mail:send", "music:play", "mail:read", "music:stop")]
        mail, music = read(pairs, tools)
        assert [document.name for document in mail.documents] == ["send", "read"]
        assert music.requests[0].wanted == {0}

    def test_a_tools_own_set_goes_before_the_prefix_of_its_id(self, read):
        pairs = many(pair("a", "mail:play", set="music"), pair("b", "mail:send", set="mail"))
        tools = [tool("mail:play", set="music"), tool("x", set="music")]
        music, mail = read(pairs, [*tools, tool("mail:send"), tool("mail:read")])
        assert [document.name for document in music.documents] == ["play", "x"]
        assert [document.name for document in mail.documents] == ["send", "read"]

    def test_a_prefix_that_is_no_set_of_the_pairs_is_part_of_an_id(self, read):
        tools = [tool("mail:send"), tool("music:play")]
        (only,) = read(many(pair("a", "mail:send")), tools)
        assert len(only.documents) == 2

    def test_two_sets_may_have_tools_of_one_id(self, read):
        pairs = many(pair("a", "send", set="mail"), pair("b", "send", set="chat"))
        tools = [tool("send", set=name, description=name) for name in ("mail", "chat")]
        tools += [tool("read", set=name) for name in ("mail", "chat")]
        mail, chat = read(pairs, tools)
        assert mail.documents[0].description == "mail"
        assert chat.documents[0].description == "chat"

    def test_sets_come_in_the_order_of_the_pairs(self, read):
        pairs = many(pair("b", "b:x", set="b"), pair("a", "a:x", set="a"))
        tools = [tool(f"{name}:{leaf}") for name in "ab" for leaf in "xy"]
        assert [each.name for each in read(pairs, tools)] == ["b", "a"]

    def test_a_set_of_tools_that_nothing_asks_for_is_passed_over(self, read):
        tools = [tool(name) for name in ("send", "read")] + [tool("play", set="music")]
        (only,) = read(many(pair("a", "send")), tools)
        assert [document.name for document in only.documents] == ["send", "read"]

    def test_a_request_may_need_several_tools(self, read):
        (only,) = read(
            many(pair("a", "read", "send", "read")), [tool(name) for name in ("send", "x", "read")]
        )
        assert only.requests[0].wanted == {0, 2}

    def test_the_set_is_no_part_of_a_tools_definition(self, read):
        (only,) = read(
            many(pair("a", "send", set="mail")),
            [tool("send", set="mail", server="post"), tool("read", set="mail")],
        )
        assert only.documents[0].server == "post"
        assert "mail" not in only.documents[0].text()

    def test_empty_lines_and_other_scripts_are_no_matter(self, read):
        pairs = ["", *many(pair("メールを送る", "送信")), ""]
        (only,) = read(pairs, ["", tool("送信"), "", tool("再生")])
        assert only.requests[0].text == "メールを送る"


class TestLeavingOut:
    @pytest.fixture
    def files(self):
        pairs = many(pair("a", "mail:send", set="mail"), pair("b", "music:play", set="music"))
        tools = [tool(f"{each}") for each in ("mail:send", "mail:read", "music:play", "music:stop")]
        return [*pairs, pair("c", "music:stop", set="music")], tools

    def test_a_set_can_be_left_out(self, read, files):
        (music,) = read(*files, leave_out=["mail"])
        assert music.name == "music"
        assert [document.name for document in music.documents] == ["play", "stop"]
        assert len(music.requests) == 20

    def test_what_is_left_out_does_not_count_to_the_fewest(self, read, files):
        with pytest.raises(SourceError, match=r"pairs\.jsonl: 1 pairs are too few.*wanted 20"):
            read(*files, leave_out=["music"])

    def test_errors_of_a_set_that_is_left_out_are_no_matter(self, read, files):
        pairs, tools = files
        missing = pair("d", "mail:nowhere", set="mail")
        assert len(read([*pairs, missing], tools, leave_out=["mail"])) == 1

    def test_a_set_to_leave_out_that_is_not_there_is_an_error_with_those_that_are(
        self, read, files
    ):
        with pytest.raises(SourceError, match=r"no set 'post' to leave out; it has mail, music"):
            read(*files, leave_out=["mail", "post"])

    def test_where_sets_have_no_names_none_can_be_left_out(self, read):
        with pytest.raises(SourceError, match="no set 'mail' to leave out; it has no names"):
            read(many(pair("a", "send")), [tool("send"), tool("read")], leave_out=["mail"])


class TestErrors:
    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("{", "not JSON"),
            ('["a"]', "wanted a JSON object"),
            ({"relevant": ["send"]}, "'query': field required"),
            ({"query": "a"}, "'relevant': field required"),
            (pair("", "send"), "'query': string should match pattern"),
            (pair("   ", "send"), "query"),
            (pair("a"), "'relevant': list should have at least 1 item"),
            ({"query": "a", "relevant": "send"}, "'relevant': input should be a valid list"),
            ({"query": 3, "relevant": ["send"]}, "'query': input should be a valid string"),
            (pair("a", 3), "'relevant.0': input should be a valid string"),
            (pair("a", "send", set=3), "'set': input should be a valid string"),
            (pair("a", "sent"), "'relevant' names 'sent', an id that no tool of its set has"),
        ],
        ids=str,
    )
    def test_a_pair_that_is_none_names_file_and_line(self, read, line, problem):
        pairs = [*many(pair("a", "send")), line, pair("a", "send")]
        with pytest.raises(SourceError) as caught:
            read(pairs, [tool("send"), tool("read")])
        assert problem in str(caught.value)
        assert caught.value.source.endswith("pairs.jsonl")
        assert caught.value.line == 21

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("{", "not JSON"),
            ("3", "wanted a JSON object"),
            ({"name": "read"}, "'id' is None; wanted the id that pairs name it by"),
            ({"id": 3, "name": "read"}, "'id' is 3; wanted the id"),
            ({"id": "read"}, "name"),
            ({"id": "search", "type": "web_search"}, ""),
            (tool("send", description="Another tool of the same id."), "send"),
        ],
        ids=str,
    )
    def test_a_tool_that_is_none_names_file_and_line(self, read, line, problem):
        with pytest.raises(SourceError) as caught:
            read(many(pair("a", "send")), [tool("send"), tool("read"), line])
        assert problem in str(caught.value)
        assert caught.value.source.endswith("tools.jsonl")
        assert caught.value.line == 3

    def test_a_tool_of_another_set_is_an_error(self, read):
        pairs = many(pair("a", "mail:send", set="mail"), pair("b", "music:play", set="music"))
        pairs[6] = pair("c", "mail:send", "music:play", set="mail")
        tools = [tool(each) for each in ("mail:send", "mail:read", "music:play", "music:stop")]
        with pytest.raises(SourceError, match="names 'music:play', an id that no tool of its set"):
            read(pairs, tools)

    def test_a_set_without_any_tools_is_an_error(self, read):
        with pytest.raises(SourceError, match="line 1: 'relevant' names 'mail:send'"):
            read(many(pair("a", "mail:send", set="post")), [tool("mail:send"), tool("mail:read")])

    def test_a_set_of_a_single_tool_is_an_error(self, read):
        with pytest.raises(SourceError, match="line 1: its set has a single tool"):
            read(many(pair("a", "send")), [tool("send")])

    @pytest.mark.parametrize("count", [1, 19])
    def test_too_few_pairs_are_an_error(self, read, count):
        with pytest.raises(SourceError, match=f"{count} pairs are too few to learn from; wanted"):
            read(many(pair("a", "send"), count=count), [tool("send"), tool("read")])

    def test_an_empty_file_is_an_error(self, read):
        with pytest.raises(SourceError, match="0 pairs are too few"):
            read([], [tool("send"), tool("read")])

    @pytest.mark.parametrize("missing", ["pairs.jsonl", "tools.jsonl"])
    def test_a_file_that_is_not_there_is_an_error(self, read, tmp_path, missing):
        read(many(pair("a", "send")), [tool("send"), tool("read")])
        (tmp_path / missing).unlink()
        with pytest.raises(SourceError, match=rf"{missing}: cannot be read"):
            read_pairs(tmp_path / "pairs.jsonl", tmp_path / "tools.jsonl")
