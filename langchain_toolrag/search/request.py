"""What a user typed or pasted in -> the request in it, and its parts, out.

A request may come with a log, a mail thread or a page of code. Those words are about the
payload, not about which tool is wanted, and a sentence embedding follows whatever is longest.
"""

from __future__ import annotations

import re

_LONGEST = 8_000  # Characters that are looked at, half from either end.
_FEWEST_WORDS = 2  # What is left has to be at least so many words.
_MANY_WORDS = 60  # A text of more words is cut down to its first and last sentences.
_END_SENTENCES = 2
_SENTENCE_WORDS = 40
_FEWEST_PART_WORDS = 3
_MOST_PARTS = 4

_PAYLOADS = (
    re.compile(r"```.*?(?:```|\Z)", re.DOTALL),  # code
    re.compile(  # what a program put around the user's words
        r"<(context|system|background|instructions?|documents?|files?|data|history)\b[^>]*>"
        r".*?</\1>",
        re.DOTALL | re.IGNORECASE,
    ),
    re.compile(r"^\s*>.*$", re.MULTILINE),  # quoted mail
    re.compile(r"^(?:fwd?|re|from|to|cc|sent|subject|date)\s*:.*$", re.MULTILINE | re.IGNORECASE),
    re.compile(r"[\[{][^\n]{100,}[\]}]"),  # JSON
    re.compile(  # logs and tracebacks
        r"^\s*(?:\[?\d{4}-\d\d-\d\d[ T]|\[?\d\d:\d\d:\d\d|(?:ERROR|WARN(?:ING)?|INFO|DEBUG)\b"
        r"|Traceback \(|File \"|at [\w.$]+\().*$",
        re.MULTILINE,
    ),
    re.compile(r"(?<=with the (?:text|body))\s*:\s.*", re.DOTALL),
    re.compile(r"(?<=with the message)\s*:\s.*", re.DOTALL),
    re.compile(r"(?<!\w)(['\"“‘])(?:[^\s'\"”’]+\s+){3,}[^\s'\"”’]+['\"”’](?!\w)"),  # quotations
)  # fmt: skip
_URL = re.compile(r"\bhttps?://\S+")
_SENTENCE = re.compile(r"(?<=[.?!;。？！])\s+|\n+")
_PART = re.compile(
    r"(?<=[.?!;。？！])\s+|\n+|,?\s+(?:and|then|but|also)\s+(?:then\s+|also\s+|please\s+)*",
    re.IGNORECASE,
)


def request_in(text: str) -> str:
    """Return the request in a text, without what was pasted beside it.

    Left out are code, quoted mail, logs, JSON and long quotations; an address becomes the word
    `url`. Of what is longer still, the first and last sentences stay, where requests stand. A text
    that is nothing but payload is kept.
    """
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"
    kept = _URL.sub("url", text)
    for payload in _PAYLOADS:
        shorter = payload.sub(" ", kept)
        if len(shorter.split()) >= _FEWEST_WORDS:
            kept = shorter
    return _ends(kept) if len(kept.split()) > _MANY_WORDS else kept.strip()


def parts_of(request: str) -> list[str]:
    """Return the parts of a request that asks for several things; none where it asks for one.

    Parts end with a sentence, a line, or an "and"; those of fewer than 3 words are no parts, and
    no more than 4 are returned.
    """
    parts = [part.strip(" ,") for part in _PART.split(request)]
    long_enough = [part for part in parts if len(part.split()) >= _FEWEST_PART_WORDS]
    return long_enough[:_MOST_PARTS] if len(long_enough) > 1 else []


def _ends(text: str) -> str:
    sentences = [part.strip() for part in _SENTENCE.split(text) if part.strip()]
    if len(sentences) <= 2 * _END_SENTENCES:
        chosen = sentences
    else:
        chosen = [*sentences[:_END_SENTENCES], *sentences[-_END_SENTENCES:]]
    return " ".join(_shortened(sentence) for sentence in chosen)


def _shortened(sentence: str) -> str:
    """Cut the middle out of an endless sentence."""
    words = sentence.split()
    if len(words) <= _SENTENCE_WORDS:
        return sentence
    half = _SENTENCE_WORDS // 2
    return " ".join([*words[:half], *words[-half:]])
