"""Who is hit, in which form things come and go, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.errors import ConsilienceError, InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import KINDS, Samples
from consilience.corruption import (
    Corruptor,
    corrupt,
    corruption_names,
    find_corruption,
    register_corruption,
)
from consilience.corruption.corruptions import CORRUPTIONS, DEFAULT

N = 23


def everything(n=N):
    """All five kinds, with missing rows and padding that holds rubbish."""
    rng = np.random.default_rng(0)
    vector = rng.normal(size=(n, 4)).astype(np.float32)
    vector[[1, 8]] = np.nan
    sequence = rng.normal(size=(n, 6, 2))
    lengths = rng.integers(0, 7, size=n)
    sequence[np.arange(6) >= lengths[:, None]] = np.nan
    text = [f"the {colour} square" for colour in rng.choice(["red", "blue"], size=n)]
    text[5] = None
    return Samples.of(
        {
            "vector": vector,
            "image": rng.integers(0, 256, size=(n, 1, 4, 4)).astype(np.uint8),
            "sequence": sequence,
            "tokens": rng.integers(2, 9, size=(n, 5)),
            "text": text,
        },
        kinds={"tokens": "tokens"},
        lengths={"sequence": lengths, "tokens": rng.integers(1, 6, size=n)},
        index=rng.permutation(500)[:n],
        y=np.arange(n),
    )


def same(a, b):
    for name in a.names:
        there = a.present_in(name)
        np.testing.assert_array_equal(there, b.present_in(name))
        if name in a.lengths:
            np.testing.assert_array_equal(a.lengths[name][there], b.lengths[name][there])
        if a.modalities[name].kind == "text":
            assert a[name].tolist() == b[name].tolist()
        else:
            np.testing.assert_array_equal(a[name][there], b[name][there])
    np.testing.assert_array_equal(a.index, b.index)


def names_for(corruption):
    """This corruption wherever it applies, the default elsewhere."""
    kinds = find_corruption(corruption).kinds
    return {kind: corruption if kind in kinds else DEFAULT[kind] for kind in KINDS}


BUILT_IN = ("blank", "drop", "gaussian", "missing", "salt-and-pepper", "scaled", "structured-drop", "stuck", "swapped")


def test_the_built_in_corruptions():
    assert set(BUILT_IN) <= set(corruption_names())


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(BUILT_IN),
    st.floats(0, 12),
    st.permutations(range(N)),
    st.sets(st.integers(1, N - 1), max_size=4),
)
def test_batches_of_any_size_and_order_get_the_same_bits(corruption, level, order, cuts):
    samples, order = everything(), np.array(order)
    corruptor = Corruptor(samples)
    whole = corruptor.apply(samples, names_for(corruption), level)
    for rows in np.split(order, sorted(cuts)):
        part = corruptor.apply(samples[rows], names_for(corruption), level)
        same(whole[rows], part)


@pytest.mark.parametrize("corruption", BUILT_IN)
def test_the_input_is_not_modified_and_missing_stays_missing(corruption):
    samples, untouched = everything(), everything()
    out = corrupt(samples, names_for(corruption), 8, probability=1)
    same(samples, untouched)
    for name in samples.names:
        assert samples[name].dtype == untouched[name].dtype
    assert not (out.present & ~samples.present).any()
    if corruption != "missing":
        np.testing.assert_array_equal(out.present, samples.present)
    assert np.isnan(out["vector"][[1, 8]]).all()
    assert out["text"][5] is None
    np.testing.assert_array_equal(out.y, samples.y)


@pytest.mark.parametrize("corruption", BUILT_IN)
def test_padding_of_what_is_hit_is_zero(corruption):
    samples = everything()
    out = corrupt(samples, names_for(corruption), 8, probability=1)
    if corruption == "missing":
        assert out["sequence"] is samples["sequence"]  # it was not even read
        return
    for name in ("sequence", "tokens"):
        beyond = np.arange(out[name].shape[1]) >= out.lengths[name][:, None]
        assert not out[name][beyond & out.present_in(name)[:, None]].any()
    assert np.isfinite(out["sequence"][out.present_in("sequence")]).all()


def test_padding_does_not_change_the_noise():
    short = Samples.of({"s": np.ones((4, 3, 2))})
    padded = Samples.of({"s": np.pad(np.ones((4, 3, 2)), ((0, 0), (0, 5), (0, 0)))}, lengths={"s": [3] * 4})
    for corruption in ("gaussian", "drop", "structured-drop", "stuck"):
        reference = Samples.of({"s": np.arange(24.0).reshape(4, 3, 2)})
        a, b = (corrupt(one, corruption, 4, probability=1, reference=reference)["s"] for one in (short, padded))
        np.testing.assert_array_equal(a, b[:, :3])


def test_each_modality_is_hit_with_the_probability_and_independently():
    n = 20000
    x = {"a": np.ones((n, 1)), "b": np.ones((n, 1))}
    for probability in (0.5, 0.2):
        out = corrupt(x, "scaled", 1, probability=probability)
        a, b = (out[name][:, 0] != 1 for name in x)
        assert abs(a.mean() - probability) < 0.015
        assert abs(b.mean() - probability) < 0.015
        assert abs((a & b).mean() - probability**2) < 0.015


def test_who_is_hit_depends_on_neither_level_nor_corruption_nor_the_other_modalities():
    samples = Samples.of({"a": np.random.default_rng(0).normal(size=(200, 3)), "b": np.ones((200, 3))})
    hits = [
        (corrupt(samples, corruption, level)["a"] != samples["a"]).any(axis=1)
        for corruption in ("gaussian", "scaled", "blank")
        for level in (0.1, 3, 12)
    ]
    hits.append((corrupt(samples, {"a": "scaled", "b": "missing"}, 3, modalities="a")["a"] != samples["a"]).any(axis=1))
    hits.append((corrupt(samples.only(["a"]), level=3)["a"] != samples["a"]).any(axis=1))
    assert 0 < hits[0].sum() < 200
    for hit in hits:
        np.testing.assert_array_equal(hit, hits[0])
    other = (corrupt(samples, "scaled", 1, random_state=1)["a"] != samples["a"]).any(axis=1)
    assert (other != hits[0]).any()


def test_a_larger_probability_hits_the_same_and_more():
    samples = everything()
    few, many = (corrupt(samples, "missing", 10, probability=p).present for p in (0.3, 0.6))
    assert (many <= few).all()
    assert many.sum() < few.sum() < samples.present.sum()
    same(samples, corrupt(samples, "missing", 10, probability=0))


def test_defaults_follow_the_kind():
    samples = everything()
    by_kind = {"vector": "gaussian", "image": "gaussian", "sequence": "gaussian", "tokens": "blank", "text": "blank"}
    same(corrupt(samples, level=3), corrupt(samples, by_kind, 3))


@settings(max_examples=25, deadline=None)
@given(st.sets(st.sampled_from(KINDS), min_size=1), st.sampled_from(["missing", "swapped"]), st.floats(0.1, 10))
def test_a_mapping_corrupts_only_what_it_names(names, corruption, level):
    samples = everything()
    whole = corrupt(samples, corruption, level, probability=1)
    some = corrupt(samples, dict.fromkeys(names, corruption), level, probability=1)
    rest = [name for name in samples.names if name not in names]
    same(some.only(sorted(names)), whole.only(sorted(names)))
    for name in rest:
        assert some[name] is samples[name]
        np.testing.assert_array_equal(some.present_in(name), samples.present_in(name))


def test_a_mapping_names_a_corruption_for_every_chosen_modality():
    samples = everything()
    pair = {"vector": "scaled", "image": "gaussian"}
    same(corrupt(samples, pair, 3, modalities="vector"), corrupt(samples, {"vector": "scaled"}, 3))
    with pytest.raises(InputError, match=r"'text' is to be corrupted, and .* only for 'vector', 'image': name one"):
        corrupt(samples, pair, 3, modalities=["vector", "text"])
    with pytest.raises(InputError, match="an empty mapping names no modality"):
        corrupt(samples, {}, 3)


def test_chosen_modalities_only():
    samples = everything()
    out = corrupt(samples, level=5, probability=1, modalities=["vector"])
    for name in ("image", "sequence", "tokens", "text"):
        assert out[name] is samples[name]


def test_images_of_bytes_neither_wrap_nor_clip_unless_told():
    x = {"image": np.random.default_rng(0).integers(20, 236, size=(40, 1, 6, 6)).astype(np.uint8)}
    out = corrupt(x, "gaussian", 3, probability=1)["image"]
    assert out.dtype == np.float32
    assert out.min() < 0
    assert out.max() > 255
    clipped = corrupt(x, "gaussian", 3, probability=1, clip=True)["image"]
    np.testing.assert_array_equal(clipped, np.clip(out, x["image"].min(), x["image"].max()))


def test_integers_that_do_not_fit_32_bits_keep_their_value():
    x = {"a": np.array([[2**40 + 1], [3]])}
    np.testing.assert_array_equal(corrupt(x, "drop", 1e-9, probability=1)["a"], x["a"])


def test_a_mapping_comes_back_as_arrays_with_missing_rows_as_nan():
    x = {
        "a": np.arange(8).reshape(4, 2),
        "column": np.arange(4.0),
        "text": ["one two"] * 4,
        "ragged": [np.ones((length, 2)) for length in (1, 3, 2, 3)],
    }
    out = corrupt(x, "missing", 10, probability=1)
    assert np.isnan(out["a"]).all()
    assert out["column"].shape == (4,)
    assert out["text"].tolist() == [None] * 4
    assert out["ragged"].tolist() == [None] * 4
    for level in (0, 2):
        once = corrupt(x, level=level)
        again, direct = Samples.of(once), corrupt(Samples.of(x), level=level)
        same(again, direct)
        assert all(isinstance(values, np.ndarray) for values in once.values())


def test_lists_with_a_missing_row_come_back_with_it_missing():
    x = {"s": [np.ones((3, 1)), None, np.ones((3, 1))]}
    for level in (0, 1):
        out = corrupt(x, "scaled", level, probability=1)["s"]
        assert out[1] is None
        np.testing.assert_array_equal(out[0], np.full((3, 1), 1.0 + level))


def test_a_list_of_vectors_with_a_gap_comes_back_with_it_missing():
    out = corrupt({"a": [np.ones(1), None, np.ones(1)]}, "scaled", 1, probability=1)
    assert Samples.of(out).present[:, 0].tolist() == [True, False, True]
    assert out["a"][[0, 2]].ravel().tolist() == [2, 2]


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch")
    x = {"a": torch.arange(6.0).reshape(3, 2), "b": torch.ones(3, 4)}
    out = corrupt(x, "scaled", 1, probability=1, modalities=["a"])
    assert out["b"] is x["b"]
    assert out["a"].dtype == torch.float32
    assert torch.equal(out["a"], 2 * x["a"])
    assert torch.isnan(corrupt(x, "missing", 10, probability=1)["a"]).all()


def test_an_index_makes_a_part_of_a_mapping_equal_to_the_whole():
    x = {"a": np.random.default_rng(0).normal(size=(30, 5))}
    rows = np.array([7, 3, 20])
    whole = corrupt(x)["a"]
    part = corrupt({"a": x["a"][rows]}, reference=x, index=rows)["a"]
    np.testing.assert_array_equal(part, whole[rows])


def test_memory_mapped_samples_give_the_same_numbers(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 1, 3, 3)).astype(np.float32)
    np.save(tmp_path / "image.npy", values)
    mapped = Samples.of({"image": np.load(tmp_path / "image.npy", mmap_mode="r"), "audio": np.ones((40, 2))})
    in_memory = Samples.of({"image": values, "audio": np.ones((40, 2))})
    rows = np.arange(39, 3, -1)
    for corruption in ("gaussian", "swapped"):
        same(corrupt(mapped, corruption, 5)[rows], corrupt(in_memory, corruption, 5)[rows])
        same(Corruptor(mapped).apply(mapped[rows], corruption, 5), corrupt(in_memory, corruption, 5)[rows])
    assert corrupt(mapped, "missing", 5).on_disk


def test_a_corruption_of_ones_own():
    with CORRUPTIONS.restored():

        @register_corruption("negated", kinds=("vector",), level="the factor, with its sign turned")
        def negated(portion, level, *, offset=0.0):
            return portion.having(offset - level * portion.values)

        x = {"a": np.ones((3, 2))}
        np.testing.assert_array_equal(corrupt(x, "negated", 2, probability=1, offset=5.0)["a"], np.full((3, 2), 3.0))
        with pytest.raises(ConsilienceError, match="registered twice"):
            register_corruption("negated", kinds=("vector",), level="")(negated)
        with pytest.raises(ConsilienceError, match="lower-case words joined by hyphens"):
            register_corruption("Not A Name", kinds=("vector",), level="")(negated)
    with pytest.raises(UnknownNameError, match="did you mean 'vector'"):
        register_corruption("fine", kinds=("vectors",), level="")


X = {"a": np.ones((4, 2)), "words": ["x y"] * 4}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"level": -1}, InputError, "level must be a number ≥ 0, got -1"),
        ({"level": float("nan")}, InputError, "level must be a number ≥ 0, got nan"),
        ({"level": float("inf")}, InputError, "level must be a number ≥ 0, got inf"),
        ({"level": "high"}, InputError, "level must be a number"),
        ({"probability": 1.5}, InputError, "probability must be a number ≥ 0 and ≤ 1, got 1.5"),
        ({"probability": "often"}, InputError, "probability must be a number ≥ 0 and ≤ 1"),
        ({"random_state": None}, InputError, "random_state must be a whole number, got None"),
        ({"corruption": "gausian"}, UnknownNameError, "did you mean 'gaussian'"),
        ({"corruption": {"b": "drop"}}, UnknownNameError, "unknown modality 'b'"),
        ({"modalities": ["b"]}, UnknownNameError, "unknown modality 'b'"),
        ({"corruption": "gaussian"}, UnsupportedError, r"does not apply to words \(text\).*Give a mapping.*'blank'"),
        ({"densty": 0.1, "corruption": {"a": "salt-and-pepper"}}, UnknownNameError, "did you mean 'density'"),
        (
            {"density": 2, "corruption": {"a": "salt-and-pepper"}, "probability": 1},
            InputError,
            "between 0 and 1, got 2",
        ),
        ({"scale": "log", "probability": 1}, InputError, "scale must be 'std' or 'raw', got 'log'"),
        ({"reference": {"b": np.ones((3, 2))}, "probability": 1}, UnknownNameError, "unknown modality 'a'"),
        ({"reference": {"a": np.ones((3, 5))}}, InputError, r"knows a \(vector 5\).*have a \(vector 2\)"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        corrupt(X, **arguments)


def test_more_errors():
    with pytest.raises(InputError, match="carry their own index"):
        corrupt(Samples.of(X), index=np.arange(4))
    statistics = Corruptor({"a": X["a"]}).statistics
    with pytest.raises(InputError, match="holds statistics only"):
        corrupt({"a": X["a"]}, "swapped", 10, probability=1, reference=statistics)
    with pytest.raises(InputError, match="no other sample"):
        corrupt({"a": np.ones((1, 2))}, "swapped", 10, probability=1)
    with pytest.raises(InputError, match="token id ≥ 0"):
        corrupt(everything(), level=10, probability=1, unknown=-1)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_hits_are_the_samples_whose_values_change(probability):
    rng = np.random.default_rng(3)
    values = {"heat": rng.normal(size=(60, 3)), "sound": rng.normal(size=(60, 2))}
    values["heat"][::4] = np.nan
    samples = Samples.of(values)
    corruptor = Corruptor(samples)
    how = {"probability": probability, "random_state": 7}
    hits = corruptor.hits(samples, "gaussian", **how)
    noisy = corruptor.apply(samples, "gaussian", 5.0, **how)
    for name in values:
        there = samples.present_in(name)
        changed = there & (np.asarray(noisy[name]) != np.asarray(samples[name])).any(axis=1)
        assert np.array_equal(hits[name], changed)
    assert corruptor.hits(samples, "missing", **how) == {}
    assert list(corruptor.hits(samples, {"heat": "missing", "sound": "gaussian"}, **how)) == ["sound"]
