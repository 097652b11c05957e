import functools
from typing import Annotated

import pytest
from fakes import make_tool
from langchain.tools import InjectedState, InjectedStore, ToolRuntime, tool
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool
from langgraph.store.base import BaseStore
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from langchain_toolrag.catalogue.document import (
    document_of,
    identify,
    is_definition,
    openai_definition,
    server_of,
)
from langchain_toolrag.errors import InvalidToolError

PARAMETERS = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "priority": {"enum": ["high", "low"]}},
    "required": ["to"],
}
FLAT = {"name": "send_email", "description": "Sends an email.", "parameters": PARAMETERS}
NESTED = {"type": "function", "function": FLAT}
RESPONSES = {"type": "function", **FLAT}
ANTHROPIC = {"name": "send_email", "description": "Sends an email.", "input_schema": PARAMETERS}
MCP = {"name": "send_email", "description": "Sends an email.", "inputSchema": PARAMETERS}


class SendEmail(BaseModel):
    """Sends an email."""

    to: str = Field(description="the receiver")
    priority: str = "low"


class Label(TypedDict):
    """Puts a label on a mail."""

    colour: str


def send_email(to: str, priority: str = "low") -> str:
    """Sends an email."""
    return to + priority


def pydantic_tool():
    return StructuredTool.from_function(send_email, args_schema=SendEmail)


class Sender(BaseTool):
    name: str = "send_email"
    description: str = "Sends an email."
    args_schema: type[BaseModel] = SendEmail

    def _run(self, to, priority):
        return to + priority


KINDS = {
    "decorated function": tool(send_email),
    "pydantic schema": pydantic_tool(),
    "dict schema": make_tool("send_email", "Sends an email.", ("to", "priority")),
    "BaseTool subclass": Sender(),
    "function": send_email,
    "flat definition": FLAT,
    "nested definition": NESTED,
    "Responses definition": RESPONSES,
    "Anthropic definition": ANTHROPIC,
    "MCP definition": MCP,
}


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_every_kind_of_tool_gives_the_same_document(given):
    document = document_of(given)
    assert document.id == document.name == document.bound_name == "send_email"
    assert document.words == ("send", "email")
    assert document.description == "Sends an email."
    assert document.parameters == ("to", "priority")
    assert document.server is None


def test_a_pydantic_class_stands_for_a_function():
    document = document_of(SendEmail)
    assert document.name == "SendEmail"
    assert document.description == "Sends an email."
    assert document.parameters == ("to", "priority")


def test_a_typed_dict_stands_for_a_function():
    document = document_of(Label)
    assert (document.name, document.parameters) == ("Label", ("colour",))


def test_enumerated_values_are_words_of_the_tool():
    assert document_of(MCP).values == ("high", "low")


def test_a_function_without_a_docstring_is_described_by_its_name():
    def read_inbox(folder: str) -> str:
        return folder

    assert document_of(read_inbox).description == "read inbox"


def test_an_asynchronous_function_is_a_tool():
    async def fetch(url: str) -> str:
        """Fetches a page."""
        return url

    document = document_of(fetch)
    assert (document.name, document.parameters) == ("fetch", ("url",))


class Titled(BaseModel):
    """Does something."""

    model_config = ConfigDict(title="Another title")


@pytest.mark.parametrize(
    "given",
    [
        *KINDS.values(),
        SendEmail,
        Label,
        Titled,
        make_tool("send_email", server="mail"),
        {**MCP, "server": "mail"},
        {**NESTED, "server": "mail"},
        {**MCP, "id": "17"},
    ],
)
def test_a_tool_is_identified_without_being_read(given):
    assert identify(given) == document_of(given).id


def test_injected_arguments_are_not_in_the_document():
    @tool
    def track(
        code: str,
        state: Annotated[dict, InjectedState],
        field: Annotated[str, InjectedState("folder")],
        store: Annotated[BaseStore, InjectedStore()],
        call: Annotated[str, InjectedToolCallId],
        secret: Annotated[str, InjectedToolArg],
        runtime: ToolRuntime,
        config: RunnableConfig,
    ) -> str:
        """Tracks a parcel."""
        return code

    assert document_of(track).parameters == ("code",)


def test_injected_arguments_of_a_plain_function_are_not_in_the_document():
    def track(
        code: str,
        state: Annotated[dict, InjectedState],
        runtime: ToolRuntime,
        config: RunnableConfig,
    ) -> str:
        """Tracks a parcel."""
        return code

    assert document_of(track).parameters == ("code",)


def test_injected_arguments_of_a_schema_class_are_not_in_the_document():
    class Arguments(BaseModel):
        code: str
        state: Annotated[dict, InjectedState]

    def track(code, state):
        return code

    tracker = StructuredTool.from_function(
        track, name="track", description="Tracks.", args_schema=Arguments
    )
    assert document_of(tracker).parameters == ("code",)


def test_a_tool_whose_arguments_cannot_be_written_as_a_schema_is_found_by_its_name():
    class Socket:
        pass

    @tool
    def send_raw(socket: Socket) -> str:
        """Sends raw bytes."""
        return str(socket)

    document = document_of(send_raw)
    assert (document.name, document.parameters) == ("send_raw", ())


@pytest.mark.parametrize(
    "metadata",
    [
        {"server": "mail"},
        {"server": {"name": "mail"}},
        {"group": "mail"},
        {"mcp": {"server": {"name": "mail"}}},
        {"server": "mail", "group": "other", "mcp": {"server": {"name": "third"}}},
        {"server": None, "mcp": {"server": {"name": "mail"}}},
    ],
)
def test_the_server_is_read_from_the_metadata(metadata):
    assert server_of(metadata) == "mail"
    document = document_of(make_tool("send_email", **metadata))
    assert (document.server, document.id) == ("mail", "mail/send_email")
    assert document.bound_name == "send_email"


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"server": ""},
        {"server": {}},
        {"mcp": None},
        {"mcp": {"server": "mail"}},
        {"mcp": {"server": {"name": None}}},
    ],
)
def test_metadata_without_a_server_name_gives_none(metadata):
    assert server_of(metadata) is None


@pytest.mark.parametrize(
    "definition",
    [
        {**MCP, "server": "mail"},
        {**NESTED, "server": "mail"},
        {"type": "function", "function": {**FLAT, "server": "mail"}},
        {**MCP, "metadata": {"server": "mail"}},
        {**MCP, "metadata": {"mcp": {"server": {"name": "mail"}}}},
    ],
)
def test_the_server_is_read_from_a_definition(definition):
    assert document_of(definition).id == "mail/send_email"


def test_a_definition_may_bring_its_own_id():
    document = document_of({**MCP, "server": "mail", "id": "17"})
    assert (document.id, document.name, document.server) == ("17", "send_email", "mail")


@pytest.mark.parametrize(
    "definition",
    [
        {**MCP, "title": "Write a mail"},
        {**MCP, "annotations": {"title": "Write a mail", "readOnlyHint": False}},
    ],
)
def test_the_title_of_an_mcp_tool_is_read(definition):
    assert document_of(definition).title == "Write a mail"


@pytest.mark.parametrize(
    "metadata",
    [
        {"title": "Write a mail"},
        {"annotations": {"title": "Write a mail"}},
        {"mcp": {"tool": {"annotations": {"title": "Write a mail"}}}},
    ],
)
def test_the_title_of_a_tool_is_read_from_its_metadata(metadata):
    assert document_of(make_tool("send_email", **metadata)).title == "Write a mail"


def test_fields_of_mcp_that_say_nothing_about_the_arguments_are_no_words():
    output = {"type": "object", "properties": {"receipt": {"enum": ["sent"]}}}
    document = document_of({**MCP, "outputSchema": output, "icons": [], "_meta": {"a": 1}})
    assert (document.parameters, document.values) == (("to", "priority"), ("high", "low"))


def test_the_search_hint_is_read_from_the_metadata():
    assert document_of(make_tool("run", search_hint="notebook cell")).hint == "notebook cell"


def test_the_search_hint_is_read_from_the_extras():
    hinted = StructuredTool.from_function(send_email, extras={"search_hint": "post letter"})
    assert document_of(hinted).hint == "post letter"


def test_the_search_hint_is_read_from_a_definition():
    assert document_of({**MCP, "search_hint": "post letter"}).hint == "post letter"


def test_tags_are_read_from_a_tool():
    tagged = StructuredTool.from_function(send_email, tags=["write", "mail"])
    assert document_of(tagged).tags == {"write", "mail"}


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_tags_are_read_from_a_definition(kind):
    assert document_of({**MCP, "tags": kind(["write", "mail"])}).tags == {"write", "mail"}


@pytest.mark.parametrize(
    "field",
    [
        {"description": None},
        {"description": 3},
        {"annotations": None},
        {"annotations": ["read-only"]},
        {"annotations": {"title": 3}},
        {"title": {"en": "Mail"}},
        {"tags": "write"},
        {"tags": None},
        {"metadata": []},
        {"metadata": {"mcp": "mail"}},
        {"inputSchema": None},
        {"inputSchema": []},
        {"search_hint": 7},
    ],
    ids=str,
)
def test_a_field_of_another_type_than_expected_is_passed_over(field):
    document = document_of({**MCP, **field})
    assert (document.name, document.title, document.tags) == ("send_email", "", frozenset())
    assert document.hint == ""
    assert document.server is None


def test_white_space_around_a_description_is_taken_off():
    assert document_of(make_tool("a", "\n Does it.\n ")).description == "Does it."


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
@pytest.mark.parametrize("make", [make_tool, lambda name: {"name": name, "inputSchema": {}}])
def test_a_tool_without_a_name_is_an_error(make, name):
    with pytest.raises(InvalidToolError, match="a tool needs a name") as caught:
        document_of(make(name))
    assert caught.value.tool is not None


@pytest.mark.parametrize("given", [None, 3, "send_email", ["send_email"]])
def test_what_is_no_tool_is_an_error_that_says_what_was_given(given):
    with pytest.raises(InvalidToolError, match=type(given).__name__) as caught:
        document_of(given)
    assert caught.value.tool is given


class CallableObject:
    def __call__(self, to: str) -> str:
        """Sends."""
        return to


def untyped_forward(to: "Nowhere") -> str:  # noqa: F821
    """Sends."""
    return str(to)


@pytest.mark.parametrize(
    "given",
    [
        functools.partial(send_email, priority="high"),
        CallableObject(),
        untyped_forward,
        int,
        Sender,
    ],
    ids=["partial", "callable object", "unknown annotation", "builtin", "class of a tool"],
)
def test_what_langchain_cannot_make_a_tool_of_is_an_invalid_tool(given):
    with pytest.raises(InvalidToolError):
        document_of(given)


@pytest.mark.parametrize("definition", [FLAT, NESTED, RESPONSES, ANTHROPIC, MCP, {"name": "a"}])
def test_a_dict_with_a_function_name_is_a_definition(definition):
    assert is_definition(definition)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "web_search_preview"},
        {"google_search": {}},
        {},
        send_email,
        KINDS["dict schema"],
    ],
    ids=str,
)
def test_a_providers_own_tool_is_no_definition(given):
    assert not is_definition(given)


@pytest.mark.parametrize("definition", [FLAT, NESTED, RESPONSES, ANTHROPIC, MCP])
def test_every_definition_can_be_written_in_openais_form(definition):
    function = {"name": "mail", "description": "Sends an email.", "parameters": PARAMETERS}
    assert openai_definition(definition, "mail") == {"type": "function", "function": function}


def test_a_definition_without_arguments_takes_an_empty_object():
    function = openai_definition({"name": "ping"}, "ping")["function"]
    assert function["parameters"] == {"type": "object", "properties": {}}


def test_the_wish_for_strict_arguments_is_kept():
    assert openai_definition({**FLAT, "strict": True}, "a")["function"]["strict"] is True


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        (make_tool("a", server="mail"), "server mail"),
        ({**MCP, "server": "mail"}, "a definition of mail"),
        (MCP, "a definition"),
    ],
)
def test_a_document_says_where_its_tool_comes_from(given, origin):
    assert document_of(given).origin == origin


def test_the_origin_of_a_function_is_its_module_and_name():
    assert document_of(send_email).origin == f"{__name__}.send_email"


def test_the_origin_of_a_class_of_tool_is_the_class():
    assert document_of(Sender()).origin == f"{__name__}.Sender"


def test_documents_that_differ_only_in_origin_are_equal():
    assert document_of(MCP) == document_of({**MCP, "metadata": None})
    assert document_of(KINDS["decorated function"]) == document_of(send_email)
