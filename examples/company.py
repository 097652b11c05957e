"""A made-up wholesaler: its tools as they are advertised, and teams that ask for them.

Everything is in `company.json`, and drawn from it by a seed. Old dashboards, forms and leaflets
advertise themselves in the words of the users; the tools that do the work are described by
engineers. Users know which tool they need, and ask in their team's words. A phrasing is either
used from the start or comes up later: by no chance is one of the later ones asked before.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import create_model

COMPANY: dict[str, Any] = json.loads(
    (Path(__file__).parent / "company.json").read_text(encoding="utf-8")
)
LATER = {"habit": 3, "plain": 2, "rare": 3}  # Phrasings of a need that nobody uses before.

_USERS_OF_A_TEAM = 5
_FAVOURITES = 2  # Phrasings of a need that one user uses.
_OWN = 0.8  # Share of the requests that are about the team's own needs.
_TYPOS = 0.12  # Share of the requests with one.
_FOLLOW_UPS = 0.2  # Share of the later turns that only go on: "and for Q2?".
_TURNS = (0.4, 0.35, 0.15, 0.1)  # Share of the sessions with one, two, three, four requests.
_OPENINGS = ("", "", "", "hey, ", "please ", "can you help: ", "hi! ", "I'm in a hurry. ")
_ENDINGS = ("", "", "", "?", " thanks", " asap", "!", " - for me")
_BLANK = re.compile(r"\{(\w+)\}")


class Turn(NamedTuple):
    """A request and the tool that the user means."""

    text: str
    tool: str
    kind: str


class Session(NamedTuple):
    """A conversation: what its user is going to ask, and a seed for what happens then."""

    thread: str
    turns: tuple[Turn, ...]
    seed: str


class _Need(NamedTuple):
    tool: str
    kind: str
    known: tuple[str, ...]
    later: tuple[str, ...]


class _User(NamedTuple):
    """Who asks in two ways for each thing, with manners and a spelling of their own."""

    team: str
    favourites: dict[str, list[str]]
    openings: list[str]
    endings: list[str]
    small_letters: bool


class Population:
    """Forty users in eight teams, another population for each seed.

    Args:
        seed: Decides who they are, what they need how often, and which phrasings come up later.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = random.Random(f"population {seed}")
        self._needs: dict[str, list[_Need]] = {}
        for team, kind, tool, phrasings in COMPANY["needs"]:
            shuffled = rng.sample(phrasings, len(phrasings))
            later = LATER[kind]
            need = _Need(tool, kind, tuple(shuffled[later:]), tuple(shuffled[:later]))
            self._needs.setdefault(team if kind != "rare" else "", []).append(need)
        for needs in self._needs.values():
            rng.shuffle(needs)
        teams = [team for team in self._needs if team not in ("", "everybody")]
        self._users = [self._user(team, rng) for team in teams for _ in range(_USERS_OF_A_TEAM)]

    def sessions(self, name: str, count: int) -> Iterator[Session]:
        """Yield sessions: the first ones of a longer row are those of a shorter one."""
        for number in range(count):
            thread = f"{name}-{number}"
            rng = random.Random(f"session {self._seed} {thread}")
            yield Session(thread, tuple(self._turns(rng)), f"{self._seed} {thread}")

    def later(self, count: int) -> list[Turn]:
        """Return requests of the same users for the same needs, in phrasings never used before."""
        rng = random.Random(f"later {self._seed}")
        turns = []
        for _ in range(count):
            user = rng.choice(self._users)
            need = self._drawn(user, rng)
            turns.append(_said(rng, user, rng.choice(need.later), need))
        return turns

    def rare(self) -> list[Turn]:
        """Return requests for tools that nobody has asked for before."""
        rng = random.Random(f"rare {self._seed}")
        phrasings = [(need, phrasing) for need in self._needs[""] for phrasing in need.later]
        return [
            _said(rng, rng.choice(self._users), phrasing, need)
            for need, phrasing in phrasings
            for _ in range(3)
        ]

    def _user(self, team: str, rng: random.Random) -> _User:
        needs = [*self._needs[team], *self._needs["everybody"]]
        favourites = {need.tool: rng.sample(need.known, _FAVOURITES) for need in needs}
        manners = rng.choices(_OPENINGS, k=2), rng.choices(_ENDINGS, k=2)
        return _User(team, favourites, *manners, small_letters=rng.random() < 0.4)

    def _drawn(self, user: _User, rng: random.Random) -> _Need:
        """Draw what a user needs; some things are needed more often than others."""
        needs = self._needs[user.team if rng.random() < _OWN else "everybody"]
        weights = [(1 + place) ** -0.5 for place in range(len(needs))]
        return rng.choices(needs, weights)[0]

    def _turns(self, rng: random.Random) -> Iterator[Turn]:
        user = rng.choice(self._users)
        need, phrasing = None, ""
        for number in range(rng.choices((1, 2, 3, 4), _TURNS)[0]):
            blank = _BLANK.search(phrasing)
            if number and need and blank and rng.random() < _FOLLOW_UPS:
                yield _said(rng, user, f"and for {blank[0]}?", need)
                continue
            need = self._drawn(user, rng)
            phrasing = rng.choice(user.favourites[need.tool])
            yield _said(rng, user, phrasing, need)


def _said(rng: random.Random, user: _User, phrasing: str, need: _Need) -> Turn:
    """Fill a phrasing in and write it as the user does."""
    text = _BLANK.sub(lambda blank: rng.choice(COMPANY["fillers"][blank[1]]), phrasing)
    if rng.random() < _TYPOS:
        text = _mistyped(rng, text)
    ending = rng.choice(user.endings)
    text = rng.choice(user.openings) + text.removesuffix("?" if ending else "") + ending
    return Turn(text.lower() if user.small_letters else text, need.tool, need.kind)


def _mistyped(rng: random.Random, text: str) -> str:
    """Let two letters of a word change places."""
    word = rng.choice([word for word in text.split() if len(word) > 3] or [text])
    place = rng.randrange(len(word) - 1)
    wrong = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return text.replace(word, wrong, 1)


def _tool(server: str, name: str, parameters: str, description: str) -> BaseTool:
    """Make a tool that goes the way that its run's config says."""

    def run(config: RunnableConfig, **arguments: object) -> str:
        going = config["configurable"].get("outcome")
        outcome = going() if going else "ok"
        if outcome == "timeout":
            raise TimeoutError(f"{name} took too long")
        if outcome == "tool_error":
            raise ToolException(f"{name} found nothing")
        return "Done."

    fields: dict[str, Any] = {field: (str, "") for field in parameters.split(", ") if field}
    return StructuredTool(
        name=name,
        description=description,
        args_schema=create_model(name, **fields),
        func=run,
        metadata={"server": server},
        handle_tool_error=True,
    )


TOOLS: list[BaseTool] = [
    _tool(server, name, parameters, description)
    for server, tools in COMPANY["tools"].items()
    for name, (parameters, description) in tools.items()
]
