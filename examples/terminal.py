"""What the two terminal chatbots share: their options, their model, and what the user says."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from langchain.chat_models import init_chat_model
from stand_in import NOTICE, StandInModel


def options(description: str | None) -> argparse.Namespace:
    """Read the command line; the first line of the description is shown by `--help`."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--model", help="provider:name, as init_chat_model takes it")
    parser.add_argument("--demo", action="store_true", help="play a scripted conversation")
    return parser.parse_args()


def chat_model(name: str | None) -> Any:
    """Return the model of a name; for none the stand-in, which says what it is."""
    if name:
        return init_chat_model(name)
    print(f"{NOTICE} Answers come from fixed rules; pass --model for a real one.\n")
    return StandInModel()


def said(script: Sequence[str] | None) -> Iterator[str]:
    """Yield what the user says: the lines of a script, or what is typed until the input ends."""
    for text in script or ():
        print(f"you> {text}")
        yield text
    while script is None:
        try:
            text = input("you> ").strip()
        except EOFError:
            return
        if text:
            yield text
