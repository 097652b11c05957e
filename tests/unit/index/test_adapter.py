import hashlib
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from langchain_toolrag.errors import AdapterError, EmbeddingError
from langchain_toolrag.index.adapter import PACKAGED, Adapter, read_adapter, write_adapter
from langchain_toolrag.index.embedding import MiniLMEmbeddings, model_name
from langchain_toolrag.index.vector_space import vector_space
from langchain_toolrag.index.weights import DEFAULT_MODEL, DEFAULT_WEIGHTS, packaged_weights

LAYER = "encoder.layer.5.output.dense"
HEADER = {"format": "1", "kind": "low-rank", "base": "some/model", "scale": "0.5", "card": "{}"}
TEXTS = ["current weather in a city", "send money abroad", "x" * 2000]


def weights_of_a_layer(seed=0, rank=2, inputs=1536, outputs=384, spread=0.05):
    dice = np.random.default_rng(seed)
    return {
        f"{LAYER}.down": dice.normal(size=(rank, inputs)).astype(np.float32) * spread,
        f"{LAYER}.up": dice.normal(size=(outputs, rank)).astype(np.float32) * spread,
    }


def weights_of_heads(seed=0, dim=8, hidden=4):
    dice = np.random.default_rng(seed)
    shapes = {
        "first.weight": (hidden, dim),
        "first.bias": (hidden,),
        "second.weight": (dim, hidden),
        "second.bias": (dim,),
    }
    return {
        f"{side}.{name}": dice.normal(size=shape).astype(np.float32)
        for side in ("request", "tool")
        for name, shape in shapes.items()
    }


def written(path, kind="low-rank", base=DEFAULT_WEIGHTS, scale=0.5, tensors=None, card=None):
    tensors = weights_of_a_layer() if tensors is None else tensors
    write_adapter(Adapter(kind, base, scale, tensors, card or {}), path)
    return path


class TestFiles:
    def test_what_is_written_is_read_to_half_precision(self, tmp_path):
        card = {"pairs": {"büro": 20}, "measures": [0.5, None]}
        tensors = weights_of_heads()
        read = read_adapter(
            written(tmp_path / "a", "heads", "Some(model)", 0.7, tensors=tensors, card=card)
        )
        assert (read.kind, read.base, read.scale) == ("heads", "Some(model)", 0.7)
        assert read.card == card
        assert read.tensors.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert read.tensors[name].dtype == np.float16
            assert read.tensors[name] == pytest.approx(tensor, rel=1e-3, abs=1e-6)

    def test_the_digest_is_that_of_the_file(self, tmp_path):
        path = written(tmp_path / "a")
        assert read_adapter(path).digest == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_an_adapter_that_was_not_written_has_no_digest(self):
        assert Adapter("low-rank", "some/model", 1.0, {}, {}).digest == ""

    def test_weights_that_do_not_lie_together_in_memory_are_written_as_they_are(self, tmp_path):
        tensors = weights_of_a_layer()
        tensors[f"{LAYER}.up"] = np.asfortranarray(tensors[f"{LAYER}.up"])
        read = read_adapter(written(tmp_path / "a", tensors=tensors))
        assert read.tensors[f"{LAYER}.up"] == pytest.approx(tensors[f"{LAYER}.up"], abs=1e-3)

    def test_a_file_that_is_there_is_replaced_and_nothing_else_is_left(self, tmp_path):
        (tmp_path / "a").write_bytes(b"an older one")
        written(tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
        assert read_adapter(tmp_path / "a").kind == "low-rank"

    @pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\xff" * 64])
    def test_what_is_no_safetensors_is_an_error_that_names_the_file(self, tmp_path, content):
        path = tmp_path / "broken.safetensors"
        path.write_bytes(content)
        with pytest.raises(AdapterError, match=r"broken\.safetensors: cannot be read") as caught:
            read_adapter(path)
        assert caught.value.adapter == path
        assert isinstance(caught.value, EmbeddingError)

    def test_a_file_cut_off_at_its_end_is_an_error(self, tmp_path):
        path = written(tmp_path / "a")
        path.write_bytes(path.read_bytes()[:-10])
        with pytest.raises(AdapterError, match="cannot be read"):
            read_adapter(path)

    @pytest.mark.parametrize("name", ["nowhere.safetensors", "."])
    def test_a_missing_file_and_a_folder_are_errors(self, tmp_path, name):
        with pytest.raises(AdapterError, match="cannot be read") as caught:
            read_adapter(tmp_path / name)
        assert caught.value.adapter == tmp_path / name

    @pytest.mark.parametrize(
        "header",
        [
            None,
            {"format": "pt"},
            {**HEADER, "format": "2"},
            {**HEADER, "kind": "prefix"},
            {key: value for key, value in HEADER.items() if key != "kind"},
        ],
        ids=str,
    )
    def test_a_foreign_header_is_an_error_that_shows_it(self, tmp_path, header):
        save_file(weights_of_a_layer(), tmp_path / "a", header)
        with pytest.raises(AdapterError, match="wanted one as `toolrag learn` or") as caught:
            read_adapter(tmp_path / "a")
        for key, value in (header or {}).items():
            assert f"{key!r}: {value!r}" in str(caught.value)

    @pytest.mark.parametrize("key", ["base", "scale", "card"])
    def test_a_header_without_one_of_its_keys_is_an_error(self, tmp_path, key):
        header = {name: value for name, value in HEADER.items() if name != key}
        save_file(weights_of_a_layer(), tmp_path / "a", header)
        with pytest.raises(AdapterError):
            read_adapter(tmp_path / "a")

    @pytest.mark.parametrize(
        "changed",
        [{"scale": "much"}, {"scale": "nan"}, {"scale": "7"}, {"card": "{"}, {"card": "[" * 9999}],
    )
    def test_a_header_with_a_value_that_cannot_be_is_an_error(self, tmp_path, changed):
        save_file(weights_of_a_layer(), tmp_path / "a", {**HEADER, **changed})
        with pytest.raises(AdapterError):
            read_adapter(tmp_path / "a")

    @pytest.mark.parametrize("kind", ["low-rank", "heads"])
    @pytest.mark.parametrize("place", [-1, -301])
    def test_a_weight_that_was_changed_in_the_file_is_an_error(self, tmp_path, kind, place):
        tensors = weights_of_a_layer() if kind == "low-rank" else weights_of_heads()
        path = written(tmp_path / "a", kind, tensors=tensors)
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(AdapterError, match="it was edited or damaged after it was written"):
            read_adapter(path)

    @pytest.mark.parametrize(
        ("old", "new"), [(b'"scale":"0.5"', b'"scale":"0.6"'), (b"some/model", b"some/other")]
    )
    def test_a_header_that_was_changed_in_the_file_is_an_error(self, tmp_path, old, new):
        path = written(tmp_path / "a", base="some/model")
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new))
        with pytest.raises(AdapterError, match="it was edited or damaged after it was written"):
            read_adapter(path)

    def test_a_file_without_a_seal_from_before_there_were_any_is_read(self, tmp_path):
        save_file(weights_of_a_layer(), tmp_path / "a", HEADER)
        assert read_adapter(tmp_path / "a").base == "some/model"

    def test_a_file_that_has_just_been_replaced_is_read_anew(self, tmp_path):
        first = read_adapter(written(tmp_path / "a", scale=0.5))
        second = read_adapter(written(tmp_path / "a", scale=0.6))
        assert (first.scale, second.scale) == (0.5, 0.6)
        assert first.digest != second.digest


class TestWeights:
    def test_a_delta_is_up_times_down_times_the_scale(self):
        up, down = np.array([[1.0], [2.0]]), np.array([[3.0, 4.0, 5.0]])
        adapter = Adapter("low-rank", "some/model", 0.5, {"a.up": up, "a.down": down}, {})
        (delta,) = adapter.deltas().values()
        assert delta.tolist() == [[1.5, 2.0, 2.5], [3.0, 4.0, 5.0]]
        assert delta.dtype == np.float32
        assert list(adapter.deltas()) == ["a"]

    @pytest.mark.parametrize("scale", [0.0, 0.4, 1.0])
    def test_what_is_read_has_the_deltas_of_what_was_written(self, tmp_path, scale):
        tensors = weights_of_a_layer(inputs=12, outputs=6)
        delta = read_adapter(written(tmp_path / "a", scale=scale, tensors=tensors)).deltas()[LAYER]
        wanted = scale * tensors[f"{LAYER}.up"] @ tensors[f"{LAYER}.down"]
        assert delta == pytest.approx(wanted, rel=1e-2, abs=1e-5)

    @pytest.mark.parametrize(
        ("kind", "changed"),
        [
            ("low-rank", {f"{LAYER}.up": np.ones((384, 3))}),
            ("low-rank", {f"{LAYER}.down": None}),
            ("heads", {"request.first.weight": np.ones((4, 7))}),
            ("heads", {"tool.second.weight": np.ones((8, 5))}),
            ("heads", {"tool.second.bias": np.ones(7)}),
            ("heads", {"tool.first.bias": None}),
            ("heads", {"request.first.weight": np.ones(8)}),
            ("heads", {"request.first.bias": np.ones(1)}),
            ("heads", {"tool.first.bias": np.ones((4, 1))}),
            ("heads", {"tool.second.bias": np.ones((1, 8))}),
        ],
        ids=str,
    )
    def test_weights_that_do_not_fit_together_are_an_error(self, tmp_path, kind, changed):
        tensors = weights_of_a_layer() if kind == "low-rank" else weights_of_heads()
        fitting = {**tensors, **changed}
        present = {name: tensor for name, tensor in fitting.items() if tensor is not None}
        path = written(tmp_path / "a", kind, tensors=present)
        with pytest.raises(AdapterError, match="do not fit together") as caught:
            read_adapter(path)
        assert caught.value.adapter == path

    def test_heads_without_any_weights_of_heads_are_an_error(self, tmp_path):
        with pytest.raises(AdapterError, match=r"request\.first\.weight"):
            read_adapter(written(tmp_path / "a", "heads"))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("kind", ["low-rank", "heads"])
    def test_a_weight_that_is_not_finite_is_an_error(self, tmp_path, kind, bad):
        tensors = weights_of_a_layer() if kind == "low-rank" else weights_of_heads()
        list(tensors.values())[-1].flat[0] = bad
        with pytest.raises(AdapterError, match="not finite"):
            read_adapter(written(tmp_path / "a", kind, tensors=tensors))

    @pytest.mark.parametrize("kind", ["low-rank", "heads"])
    def test_a_weight_that_is_not_finite_in_the_precision_of_use_is_an_error(self, tmp_path, kind):
        tensors = weights_of_a_layer() if kind == "low-rank" else weights_of_heads()
        last = list(tensors)[-1]
        tensors[last] = np.full(tensors[last].shape, 1e300)
        save_file(tensors, tmp_path / "a", {**HEADER, "kind": kind})
        with pytest.raises(AdapterError, match="not finite"):
            read_adapter(tmp_path / "a")


class TestThePackagedAdapter:
    def test_it_is_of_low_rank_and_was_trained_on_the_default_weights(self):
        adapter = read_adapter(PACKAGED)
        assert (adapter.kind, adapter.base) == ("low-rank", DEFAULT_WEIGHTS)
        assert 0 < adapter.scale <= 1
        assert adapter.deltas()[LAYER].shape == (384, 1536)

    def test_it_is_read_without_torch(self):
        code = (
            "import sys\n"
            "from langchain_toolrag.index.adapter import PACKAGED, read_adapter\n"
            "from langchain_toolrag.index.embedding import MiniLMEmbeddings\n"
            "assert MiniLMEmbeddings().adapter.digest == read_adapter(PACKAGED).digest\n"
            "assert 'torch' not in sys.modules\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def folder():
    """The folder of the default model's weights."""
    return str(packaged_weights())


@pytest.fixture(scope="module")
def plain(folder):
    """Vectors of the default model as it is."""
    return np.array(MiniLMEmbeddings(folder, adapter=None).embed_documents(TEXTS))


@pytest.fixture
def other_weights(tmp_path):
    """An adapter of the right shapes that was trained on another model."""
    return written(tmp_path / "other.safetensors", base=hashlib.sha256(b"another").hexdigest())


class TestMiniLM:
    def test_the_default_model_takes_the_packaged_adapter(self):
        assert MiniLMEmbeddings().adapter.digest == read_adapter(PACKAGED).digest

    @pytest.mark.parametrize("model", ["some/model", "all-MiniLM-L6-v2"])
    def test_no_other_model_takes_it(self, model):
        assert MiniLMEmbeddings(model).adapter is None

    def test_a_folder_of_the_default_weights_does_not_take_it_of_itself(self, folder):
        assert MiniLMEmbeddings(folder).adapter is None

    def test_without_an_adapter_the_model_is_as_it_came(self, plain):
        model = MiniLMEmbeddings(adapter=None)
        assert model.adapter is None
        assert np.array(model.embed_documents(TEXTS)) == pytest.approx(plain, abs=1e-6)

    def test_merged_vectors_are_those_of_a_merge_by_hand(self, tmp_path, folder, plain):
        sentence_transformers = pytest.importorskip("sentence_transformers")
        torch = pytest.importorskip("torch")
        path = written(tmp_path / "a.safetensors")
        tensors = load_file(path)
        up, down = (tensors[f"{LAYER}.{part}"].astype(np.float32) for part in ("up", "down"))
        by_hand = sentence_transformers.SentenceTransformer(folder, device="cpu")
        with torch.no_grad():
            layer = by_hand[0].auto_model.encoder.layer[5].output.dense
            layer.weight += torch.from_numpy(0.5 * up @ down)
        wanted = by_hand.encode(TEXTS, normalize_embeddings=True)
        merged = np.array(MiniLMEmbeddings(adapter=path).embed_documents(TEXTS))
        assert merged == pytest.approx(wanted, abs=1e-5)
        assert np.abs(merged - plain).max() > 1e-3

    def test_a_folder_takes_an_adapter_that_was_trained_on_its_weights(self, folder):
        by_folder = MiniLMEmbeddings(folder, adapter=PACKAGED).embed_query(TEXTS[0])
        assert by_folder == pytest.approx(MiniLMEmbeddings().embed_query(TEXTS[0]), abs=1e-6)

    def test_an_adapter_of_other_weights_is_refused_when_the_model_is_loaded(self, other_weights):
        model = MiniLMEmbeddings(adapter=other_weights)
        with pytest.raises(AdapterError) as caught:
            model.load()
        assert read_adapter(other_weights).base in str(caught.value)
        assert DEFAULT_WEIGHTS in str(caught.value)
        assert caught.value.adapter == read_adapter(other_weights).digest
        assert not model.loaded

    def test_a_layer_that_the_model_does_not_have_is_an_error_of_the_adapter(self, tmp_path):
        tensors = {f"decoder{name}": tensor for name, tensor in weights_of_a_layer().items()}
        path = written(tmp_path / "a.safetensors", tensors=tensors)
        with pytest.raises(AdapterError):
            MiniLMEmbeddings(adapter=path).load()

    def test_a_layer_of_another_shape_is_an_error_of_the_adapter(self, tmp_path):
        path = written(tmp_path / "a.safetensors", tensors=weights_of_a_layer(inputs=384))
        with pytest.raises(AdapterError):
            MiniLMEmbeddings(adapter=path).load()

    def test_heads_in_an_adapters_place_are_refused_with_what_to_do(self, tmp_path):
        path = written(tmp_path / "a.safetensors", "heads", tensors=weights_of_heads())
        with pytest.raises(AdapterError, match=r"give it as ToolRAG\(heads=\.\.\.\)") as caught:
            MiniLMEmbeddings(adapter=path)
        assert caught.value.adapter == path

    def test_an_adapter_that_is_not_there_is_an_error_at_once(self, tmp_path):
        with pytest.raises(AdapterError, match="cannot be read"):
            MiniLMEmbeddings(adapter=str(tmp_path / "nowhere.safetensors"))

    def test_vectors_of_each_adapter_are_told_apart_from_the_others(self, other_weights):
        models = [MiniLMEmbeddings(adapter=each) for each in ("packaged", None, other_weights)]
        assert len({model_name(model) for model in models}) == 3
        assert len({vector_space(model) for model in models}) == 3
        assert model_name(models[1]) == f"MiniLMEmbeddings({DEFAULT_MODEL})"

    def test_the_same_weights_in_another_place_make_the_same_vectors(self, folder):
        assert vector_space(MiniLMEmbeddings(folder)) == vector_space(
            MiniLMEmbeddings(adapter=None)
        )
