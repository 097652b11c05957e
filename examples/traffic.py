"""Sessions of a population in -> searches and calls in the usage log out.

An agent finds the tools of each request; which of them it calls is decided here, by what users put
up with: mostly the right tool, if it is there, else one that sounds right, or none.
"""

import contextlib
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from company import COMPANY, Session, Turn
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_toolrag import ToolRAG, ToolRAGMiddleware
from langchain_toolrag.usage.records import Outcome

OUTCOMES: dict[Outcome, float] = {"ok": 0.88, "tool_error": 0.06, "refused": 0.03, "timeout": 0.03}

_RIGHT, _WRONG = 0.8, 0.9  # Up to the first the right tool is called, up to the second another.
_INSTEAD = 0.5  # How often another tool is called where the right one is not there.
_INSISTS = 0.3  # How often users then ask again and name the tool.


class Call(NamedTuple):
    """A tool that is called, and how that goes."""

    tool: str
    outcome: Outcome


Chooser: TypeAlias = Callable[[random.Random, Turn, Sequence[str]], Call | None]
"""Decides what is called for a request, of the ids of the tools that the agent shows."""


def as_meant(rng: random.Random, turn: Turn, shown: Sequence[str]) -> Call | None:
    """Call what the user means, mostly, if the agent can; else what sounds right, or nothing."""
    outcome = rng.choices(list(OUTCOMES), list(OUTCOMES.values()))[0]
    draw, other = rng.random(), rng.random()
    if not shown:
        return None
    there = turn.tool in shown
    if there and draw < _RIGHT:
        return Call(turn.tool, outcome)
    if draw < (_WRONG if there else _INSTEAD):
        sounding = max(sorted(shown), key=lambda tool: _shared_words(tool, turn.text))
        return Call(sounding if other < 0.5 else rng.choice(sorted(shown)), outcome)
    return None


def at_random(rng: random.Random, turn: Turn, shown: Sequence[str]) -> Call | None:
    """Call as often, but any of the tools: there is nothing to learn."""
    call = as_meant(rng, turn, shown)
    return call and Call(rng.choice(sorted(shown)), call.outcome)


class Conversation:
    """A session while it goes on; the same session goes the same way if the same tools are shown.

    Args:
        session: Who asks what.
        choose: What is called.
    """

    def __init__(self, session: Session, choose: Chooser) -> None:
        self._outcome: Outcome = "ok"
        self._choose = choose
        self._rng = random.Random(session.seed)
        self._coming = list(session.turns)
        self._turn: Turn | None = None
        self._number = 0

    def ask(self) -> str:
        """Return the next request; empty at the end."""
        self._number += 1
        self._turn = self._coming.pop(0) if self._coming else None
        return self._turn.text if self._turn else ""

    def call(self, shown: Sequence[str]) -> Call | None:
        """Return what is called of the tools that are shown, by their ids."""
        turn, self._turn = self._turn, None
        if turn is None:
            return None
        call = self._choose(self._rng, turn, shown)
        self._outcome = call.outcome if call else "ok"
        named = f", use {turn.tool.partition('/')[2]}"
        if self._rng.random() < _INSISTS and turn.tool not in shown and named not in turn.text:
            self._coming.insert(0, turn._replace(text=turn.text + named))
        if self._outcome == "timeout":  # The user has waited long enough.
            self._coming.clear()
        return call

    def last_outcome(self) -> Outcome:
        """Return how the latest call goes, for the tool to go that way."""
        return self._outcome

    @property
    def call_id(self) -> str:
        """Names the call of this turn."""
        return f"call-{self._number}"


def replay(rag: ToolRAG, sessions: Iterable[Session], choose: Chooser = as_meant) -> None:
    """Let users talk to what an agent consists of here: the selection and the log of calls."""
    for session in sessions:
        config: Any = {"configurable": {"thread_id": session.thread}}
        conversation, state = Conversation(session, choose), None
        messages: list[BaseMessage] = []
        while text := conversation.ask():
            messages.append(HumanMessage(text))
            selection = rag.select(messages, previous=state, config=config)
            state = selection.state
            call = conversation.call(selection.ids)
            messages += _told(call, conversation.call_id)
            if call is not None and rag.usage_log is not None:
                rag.usage_log.call(
                    call_id=conversation.call_id,
                    tool=call.tool,
                    outcome=call.outcome,
                    search_id=selection.search_id,
                )


def converse(rag: ToolRAG, sessions: Iterable[Session], choose: Chooser = as_meant) -> None:
    """Let users talk to LangChain's agent: it takes four times as long, and logs the same.

    What would be refused is not called here: nobody is there to refuse it.
    """
    for session in sessions:
        conversation = Conversation(session, choose)
        model = _User(conversation=conversation, ids=_ids(rag))
        agent = create_agent(
            model, middleware=[ToolRAGMiddleware(rag=rag)], checkpointer=InMemorySaver()
        )
        known = {"thread_id": session.thread, "outcome": conversation.last_outcome}
        config: Any = {"configurable": known}
        while text := conversation.ask():
            said: Any = {"messages": [("user", text)]}
            with contextlib.suppress(TimeoutError):  # Ends the run, as in life.
                agent.invoke(said, config)


class _User(BaseChatModel):
    """Stands in for the chat model: calls what the user of the conversation puts up with."""

    conversation: Any
    ids: dict[str, str]

    @property
    def _llm_type(self) -> str:
        return "user"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        """Bind tools; their names are all that is looked at."""
        definitions = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=[each["function"]["name"] for each in definitions])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        tools: Sequence[str] = (),
        **kwargs: Any,
    ) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            answer: BaseMessage = AIMessage(_DONE)
        else:
            call = self.conversation.call([self.ids[name] for name in tools])
            refused = call is not None and call.outcome == "refused"
            answer = _told(None if refused else call, self.conversation.call_id)[0]
        return ChatResult(generations=[ChatGeneration(message=answer)])


_DONE = "Done."


def _told(call: Call | None, call_id: str) -> list[BaseMessage]:
    """Return what a conversation holds of a call."""
    if call is None:
        return [AIMessage("I have no tool for that.")]
    wanted = {"name": call.tool.partition("/")[2], "args": {}, "id": call_id}
    asked, answered = AIMessage("", tool_calls=[wanted]), ToolMessage("", tool_call_id=call_id)
    return [asked, answered, AIMessage(_DONE)]


def _ids(rag: ToolRAG) -> dict[str, str]:
    documents = [entry.document for entry in rag.catalogue.entries.values()]
    return {document.bound_name: document.id for document in documents}


def _shared_words(tool: str, text: str) -> int:
    server, _, name = tool.partition("/")
    _, description = COMPANY["tools"][server][name]
    return len(_words(text) & _words(f"{name} {description}"))


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]+", text.lower()) if len(word) > 3}
