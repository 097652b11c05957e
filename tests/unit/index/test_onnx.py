import hashlib
import json
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_toolrag.errors import EmbeddingError
from langchain_toolrag.index.adapter import PACKAGED, read_adapter
from langchain_toolrag.index.encoder import load_network
from langchain_toolrag.index.onnx_encoder import BrokenExportError, OnnxEncoder
from langchain_toolrag.index.onnx_export import export_onnx
from langchain_toolrag.index.weights import DEFAULT_MODEL

TEXTS = [
    "current weather in a city",
    "",
    "is it going to rain tomorrow?",
    "book a table for two " * 12,
    "Überweise 1.000 € an Zoë Müller",
    "東京の明日の天気",
    "👩‍👩‍👧‍👦 🎉",
    "a\x00b\u200bc \u202eabc",
    "[CLS] [MASK] ##ing [SEP]",
    "weather",
    "x",
]


@pytest.fixture(scope="module")
def minilm():
    """The default model with its adapter, as sentence-transformers runs it."""
    return load_network(DEFAULT_MODEL, read_adapter(PACKAGED))


@pytest.fixture(scope="module")
def folder(minilm, tmp_path_factory):
    """The same, exported."""
    folder = tmp_path_factory.mktemp("onnx") / "fp32"
    export_onnx(minilm, folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder):
    return OnnxEncoder(folder)


@pytest.fixture
def copied(folder, tmp_path):
    """A folder like the exported one, to be damaged."""
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in folder.iterdir():
        os.link(file, copied / file.name)
    return copied


def own_vectors(model, texts):
    return model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)


def cosines(first, second):
    return np.sum(first.astype(np.float64) * second, axis=1)


def rewrite(file, content):
    """Replace a linked file, and leave the original."""
    file.unlink()
    file.write_bytes(content)


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.splitlines() or done.stderr.splitlines()


def test_vectors_are_those_of_sentence_transformers(encoder, minilm):
    found = encoder.encode(TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), 384) == (len(TEXTS), encoder.dim)
    assert cosines(found, own_vectors(minilm, TEXTS)).min() >= 0.9999
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=12))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_vectors_of_any_texts_are_those_of_sentence_transformers(encoder, minilm, texts):
    assert cosines(encoder.encode(texts), own_vectors(minilm, texts)).min() >= 0.9999


def test_a_text_of_ten_thousand_characters_is_cut_where_the_model_cuts_it(encoder, minilm):
    long = [f"{word} {'is it going to rain ' * 500}" for word in ("a", "b")]
    assert cosines(encoder.encode(long), own_vectors(minilm, long)).min() >= 0.9999


def test_vectors_come_in_the_order_of_the_texts(encoder):
    one_by_one = np.vstack([encoder.encode([text]) for text in TEXTS])
    assert encoder.encode(TEXTS) == pytest.approx(one_by_one, abs=1e-5)
    assert encoder.encode(TEXTS[::-1]) == pytest.approx(one_by_one[::-1], abs=1e-5)


def test_no_texts_give_no_vectors(encoder):
    assert encoder.encode([]).shape == (0, 384)


def test_half_a_surrogate_pair_is_read_as_a_question_mark(encoder):
    halved, marked = encoder.encode(["rain \ud83d tomorrow", "rain ? tomorrow"])
    assert halved == pytest.approx(marked, abs=1e-6)


def test_sixteen_threads_get_what_one_gets(encoder):
    texts = [f"{text} {number}" for number in range(20) for text in TEXTS]
    alone = [encoder.encode([text])[0] for text in texts]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda text: encoder.encode([text])[0], texts))
    assert np.array(together) == pytest.approx(np.array(alone), abs=1e-6)


def test_eight_bits_are_near_and_smaller(minilm, folder, tmp_path):
    export_onnx(minilm, tmp_path / "int8", precision="int8")
    encoder = OnnxEncoder(tmp_path / "int8")
    assert encoder.precision == "int8"
    assert cosines(encoder.encode(TEXTS), own_vectors(minilm, TEXTS)).min() >= 0.99
    sizes = [(at / "model.onnx").stat().st_size for at in (tmp_path / "int8", folder)]
    assert sizes[0] < 0.7 * sizes[1]


def test_it_runs_without_torch_and_imports_nothing_large_before_it_must(folder):
    lines = run(
        """
        import sys
        from pathlib import Path
        from langchain_toolrag.index.onnx_encoder import OnnxEncoder
        print([name for name in ("onnxruntime", "tokenizers") if name in sys.modules])
        print(OnnxEncoder(Path(sys.argv[1])).encode(["weather", "rain"]).shape)
        large = ("torch", "transformers", "sentence_transformers", "onnx")
        print([name for name in large if name in sys.modules])
        """,
        folder,
    )
    assert lines == ["[]", "(2, 384)", "[]"]


FORK = """
    import os, signal, sys, threading
    from pathlib import Path
    import numpy as np
    from langchain_toolrag.index.onnx_encoder import OnnxEncoder

    encoder = OnnxEncoder(Path(sys.argv[1]))
    before = encoder.encode(["weather"])
    {parent}
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        print(np.allclose(encoder.encode(["weather"]), before), {looked_at}, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    os._exit(0)
    """


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_shares_the_weights_of_its_parent(folder):
    script = FORK.format(
        parent="session = encoder._session", looked_at="encoder._session is session"
    )
    assert run(script, folder) == ["True True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_forked_while_a_thread_computes_does_not_wait_for_its_locks(folder):
    parent = """
    class Held:
        def run(self, *given):
            entered.set()
            threading.Event().wait()
    entered = threading.Event()
    encoder._session = Held()
    threading.Thread(target=encoder.encode, args=(["rain"],), daemon=True).start()
    entered.wait(20)
    """
    assert run(FORK.format(parent=parent.strip(), looked_at="entered.is_set()"), folder) == [
        "True True"
    ]


def test_a_missing_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(BrokenExportError, match=r"No such file.*export the model again") as caught:
        OnnxEncoder(tmp_path / "none")
    assert caught.value.directory == tmp_path / "none"
    assert isinstance(caught.value, EmbeddingError)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "encoder.json"])
def test_a_folder_with_a_file_gone_is_an_error(copied, name):
    (copied / name).unlink()
    with pytest.raises(BrokenExportError, match=f"No such file.*{name}"):
        OnnxEncoder(copied)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_torn_file_is_an_error(copied, name):
    rewrite(copied / name, (copied / name).read_bytes()[:-100])
    with pytest.raises(BrokenExportError, match=f"is damaged: {name} has SHA-256"):
        OnnxEncoder(copied)


def test_one_wrong_weight_is_an_error(copied):
    content = bytearray((copied / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 64
    rewrite(copied / "model.onnx", bytes(content))
    with pytest.raises(BrokenExportError, match=r"is damaged: model.onnx"):
        OnnxEncoder(copied)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_file_that_its_library_refuses_is_an_error(copied, name):
    rewrite(copied / name, b"{}")
    card = json.loads((copied / "encoder.json").read_text())
    card["digests"][name] = hashlib.sha256(b"{}").hexdigest()
    rewrite(copied / "encoder.json", json.dumps(card).encode())
    with pytest.raises(BrokenExportError, match=f"has an unusable {name}"):
        OnnxEncoder(copied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2, wanted 1"),
        ({"precision": "fp16"}, "of another make"),
        ({"digests": {}}, "of another make"),
        ({"digests": 1}, "unreadable"),
        ({"colour": "red"}, "unreadable"),
    ],
)
def test_a_card_of_another_make_is_an_error(copied, change, message):
    card = json.loads((copied / "encoder.json").read_text()) | change
    rewrite(copied / "encoder.json", json.dumps(card).encode())
    with pytest.raises(BrokenExportError, match=message):
        OnnxEncoder(copied)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'"text"', b"null"])
def test_a_card_that_is_none_is_an_error(copied, content):
    rewrite(copied / "encoder.json", content)
    with pytest.raises(BrokenExportError, match="unreadable"):
        OnnxEncoder(copied)
