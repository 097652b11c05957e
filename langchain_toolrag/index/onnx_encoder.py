"""Folder of an exported model in -> unit vectors out, without torch.

`onnx_export` writes such a folder: the network from tokens to unit vectors (`model.onnx`), its
tokenizer (`tokenizer.json`) and a card (`encoder.json`).
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.fork import reset_after_fork
from langchain_toolrag.types import Vectors

Precision: TypeAlias = Literal["fp32", "int8"]

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
CARD_FILE = "encoder.json"

_CONTENT = {MODEL_FILE, TOKENIZER_FILE}
_FORMAT = 1
_BLOCK_BYTES = 1 << 20  # The whole of a model at once would stay in the process's memory.
_BATCH = 8  # 16 and 32 are no faster, and hold more at a time.


class BrokenExportError(EmbeddingError):
    """A folder that holds no whole export of a model.

    Args:
        directory: The folder.
        problem: What is wrong with it, and what was wanted.

    Attributes:
        directory: The folder.
    """

    def __init__(self, directory: Path, problem: str) -> None:
        self.directory = directory
        super().__init__(
            f"the exported model in {directory} {problem}. "
            "Delete the folder, and export the model again."
        )


@dataclass(frozen=True, slots=True)
class EncoderCard:
    """What has to be known of an exported model to run it.

    Attributes:
        dim: Length of its vectors.
        max_tokens: How many tokens it reads of a text, special ones included.
        pad_id: The token that fills up the shorter texts of a batch.
        precision: How its weights are held.
        digests: SHA-256 of the model and the tokenizer, in hexadecimal, by file name.
        format: Version of the folder's layout.
    """

    dim: int
    max_tokens: int
    pad_id: int
    precision: Precision
    digests: Mapping[str, str]
    format: int = _FORMAT

    def to_json(self) -> str:
        """Return the text of `encoder.json`."""
        return json.dumps(asdict(self), indent=2)


class OnnxEncoder:
    """A model that `export_onnx` wrote; safe under threads and after a fork.

    Works on the calling thread alone, whatever the number of cores. Half a surrogate pair, which
    no tokenizer takes, is read as a question mark.

    Args:
        directory: The folder that `export_onnx` wrote.

    Attributes:
        dim: Length of the vectors.
        precision: How the weights are held.

    Raises:
        BrokenExportError: If the folder is missing, damaged, of another make, or of a version
            of this package with another layout.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._card = _read_card(directory)
        self.dim = self._card.dim
        self.precision = self._card.precision
        _check_files(directory, self._card)
        self._tokenizer = _read_tokenizer(directory, self._card.max_tokens)
        self._session: Any = _new_session(directory)
        self._inputs = [given.name for given in self._session.get_inputs()]
        self._running: set[object] = set()
        reset_after_fork(self)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text.

        Args:
            texts: Texts to embed; long ones are cut to what the model reads.

        Returns:
            Shape `(len(texts), dim)`, in the order of the texts.

        Raises:
            BrokenExportError: If a forked child has to read the folder again, and cannot.
        """
        tokens = [self._tokens(text) for text in texts]
        vectors = np.empty((len(texts), self.dim), np.float32)
        # Like lengths together: what fills up a text costs as much as what it says.
        order = sorted(range(len(texts)), key=lambda row: len(tokens[row]))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            vectors[rows] = self._run([tokens[row] for row in rows])
        return vectors

    def after_fork(self) -> None:
        """Forget a session that a thread of the parent was in: its locks are held for ever."""
        if self._running:
            self._session = None
            self._running = set()

    def _tokens(self, text: str) -> NDArray[np.int64]:
        whole = text.encode("utf-8", "replace").decode("utf-8")
        # Text by text: for a batch, tokenizers starts threads, which a fork would lose.
        return np.array(self._tokenizer.encode(whole).ids, np.int64)

    def _run(self, tokens: Sequence[NDArray[np.int64]]) -> Vectors:
        """Embed a batch: shape `(len(tokens), dim)`."""
        ids = np.full((len(tokens), max(map(len, tokens))), self._card.pad_id, np.int64)
        mask = np.zeros_like(ids)
        for row, own in enumerate(tokens):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return self._answer({name: given[name] for name in self._inputs})

    def _answer(self, given: Mapping[str, NDArray[np.int64]]) -> Vectors:
        if self._session is None:  # Two threads may both load it; the later one's stays.
            self._session = _new_session(self._directory)
        run = object()
        self._running.add(run)
        try:
            vectors: Vectors = self._session.run(None, given)[0]
            return vectors
        finally:
            self._running.discard(run)


def _read_card(directory: Path) -> EncoderCard:
    try:
        fields = json.loads((directory / CARD_FILE).read_text("utf-8"))
        if fields["format"] != _FORMAT:
            problem = f"has format {fields['format']!r}, wanted {_FORMAT}"
            raise BrokenExportError(directory, problem)
        card = EncoderCard(**fields)
        known = card.precision in get_args(Precision) and card.digests.keys() == _CONTENT
    except OSError as error:
        raise BrokenExportError(directory, f"cannot be read: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BrokenExportError(directory, f"has an unreadable {CARD_FILE}: {error}") from error
    if not known:
        raise BrokenExportError(directory, f"has a {CARD_FILE} of another make: {fields}")
    return card


def _check_files(directory: Path, card: EncoderCard) -> None:
    """Compare digests: damaged weights would give vectors that look right, and are kept."""
    for name, wanted in card.digests.items():
        try:
            found = file_digest(directory / name)
        except OSError as error:
            raise BrokenExportError(directory, f"cannot be read: {error}") from error
        if found != wanted:
            problem = f"is damaged: {name} has SHA-256 {found}, wanted {wanted}"
            raise BrokenExportError(directory, problem)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _read_tokenizer(directory: Path, max_tokens: int) -> Any:
    tokenizers: Any = importlib.import_module("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(directory / TOKENIZER_FILE))
        tokenizer.enable_truncation(max_tokens)
    except Exception as error:  # It raises nothing more special.
        raise BrokenExportError(directory, f"has an unusable {TOKENIZER_FILE}: {error}") from error
    tokenizer.no_padding()
    return tokenizer


def _new_session(directory: Path) -> Any:
    """Load the network, to run on the calling thread."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = str(directory / MODEL_FILE)
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # It has many classes, with no base of their own.
        raise BrokenExportError(directory, f"has an unusable {MODEL_FILE}: {error}") from error
