"""Pictures in folders, as NYU Depth V2, SUN RGB-D and UPMC Food-101 are laid out; the fixtures are drawn here."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from consilience.comparison.plan import Source
from consilience.core.errors import InputError, MissingDataError
from consilience.data import load_data
from consilience.data.media import picture_folders as images
from consilience.data.media.picture_folders import ImageFiles, load_images, read_image

rng = np.random.default_rng(0)


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(path, quality=95)
    return path


def flat(*colours, height=12, width=16):
    """Rectangles of one colour each, side by side."""
    return np.concatenate([np.broadcast_to(np.array(one), (height, width, 3)) for one in colours], axis=1)


def test_halves_are_cut_in_the_middle_and_squeezed(tmp_path):
    pixels = rng.integers(0, 256, size=(16, 32, 3))
    got = read_image(save(tmp_path / "a.png", pixels), 16, parts=2)
    np.testing.assert_array_equal(got[0], pixels[:, :16].transpose(2, 0, 1))
    np.testing.assert_array_equal(got[1], pixels[:, 16:].transpose(2, 0, 1))
    wide = read_image(save(tmp_path / "b.png", flat((200, 10, 20), (0, 90, 40), height=30, width=50)), 8, parts=2)
    assert (wide == np.array([[200, 10, 20], [0, 90, 40]])[:, :, None, None]).all()


def test_the_middle_square_is_kept(tmp_path):
    pixels = rng.integers(0, 256, size=(10, 30, 3))
    got = read_image(save(tmp_path / "a.png", pixels), 10, crop=True)
    np.testing.assert_array_equal(got[0], pixels[:, 10:20].transpose(2, 0, 1))


def test_grey_indexed_and_transparent_pictures_are_made_colour(tmp_path):
    grey = Image.fromarray(np.full((9, 9), 77, dtype=np.uint8))
    for mode in ("L", "P", "RGBA"):
        grey.convert(mode).save(tmp_path / f"{mode}.png")
        assert (read_image(tmp_path / f"{mode}.png", 8) == 77).all()


def test_a_large_jpeg_is_what_it_is_decoded_in_full(tmp_path):
    down, right = np.mgrid[:400, :600]
    smooth = np.stack([down / 400, right / 600, (down + right) / 1000], axis=2) * 255
    path = save(tmp_path / "a.jpg", smooth)
    full = Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BICUBIC)
    assert np.abs(read_image(path, 32)[0].astype(int) - np.asarray(full).transpose(2, 0, 1)).max() <= 3


def test_on_disk_as_in_memory(tmp_path, monkeypatch):
    paths = [save(tmp_path / f"{n}.png", rng.integers(0, 256, size=(9, 20, 3))) for n in range(5)]
    paths[2] = None
    held = load_images(paths, 8, parts=2)
    monkeypatch.setattr(images, "IN_MEMORY_BYTES", 0)
    read = load_images(paths, 8, parts=2)
    assert isinstance(held[0], np.ndarray)
    assert isinstance(read[0].base, ImageFiles)
    for one, other in zip(held, read):
        np.testing.assert_array_equal(one, np.asarray(other))
        np.testing.assert_array_equal(one[[4, 2, 0]], other[[4, 2, 0]])
        np.testing.assert_array_equal(one[3], other[3])
        np.testing.assert_array_equal(one[1:3], pickle.loads(pickle.dumps(other))[1:3])
    assert not held[1][2].any()


def test_what_is_no_picture_is_said(tmp_path):
    path = save(tmp_path / "a.png", rng.integers(0, 256, size=(40, 40, 3)))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"a\.png is truncated or not a picture"):
        read_image(path, 8)
    path.write_text("hello")
    with pytest.raises(InputError, match=r"a\.png is truncated or not a picture"):
        read_image(path, 8)
    save(path, np.zeros((5, 1, 3)))
    with pytest.raises(InputError, match="1 pixels wide: there are no 2 parts"):
        read_image(path, 8, parts=2)


ROOMS = {"bedroom": (200, 30, 40), "kitchen": (10, 180, 90)}


def scenes(folder, parts=(("train", 10), ("val", 2), ("test", 3))):
    for part, n in parts:
        for room, colour in ROOMS.items():
            for number in range(n):
                save(folder / part / room / f"{number:03}.png", flat(colour, (number, number, number)))
    return folder


@pytest.mark.parametrize(("name", "folder"), [("nyu-depth", "nyud2_trainvaltest"), ("sun-rgbd", "sunrgbd")])
def test_scenes_in_colour_and_depth(tmp_path, name, folder):
    scenes(tmp_path / folder)
    (tmp_path / folder / "train" / "kitchen" / "Thumbs.db").write_text("no picture")
    data = load_data(name, data_dir=tmp_path, size=16)
    assert data.sizes == {"train": 20, "validation": 4, "test": 6}
    assert data.official_split
    assert not data.drawn_validation
    assert {one.describe() for one in data.modalities.values()} == {"rgb (image 3×16×16)", "depth (image 3×16×16)"}
    assert data.classes.tolist() == ["bedroom", "kitchen"]
    for row, room in enumerate(data.test.y):
        assert (data.test["rgb"][row] == np.array(ROOMS[room])[:, None, None]).all()
        assert (data.test["depth"][row] == row % 3).all()


def test_scenes_without_a_validation_folder(tmp_path):
    scenes(tmp_path / "sunrgbd", (("train", 10), ("test", 3)))
    data = load_data("sun-rgbd", data_dir=tmp_path)
    assert data.drawn_validation
    assert data.sizes == {"train": 17, "validation": 3, "test": 6}
    assert data.modalities["depth"].shape == (3, 64, 64)
    with pytest.raises(InputError, match="size must be a whole number ≥ 8, got 4"):
        load_data("sun-rgbd", data_dir=tmp_path, size=4)


def test_folders_that_are_missing_or_empty(tmp_path):
    scenes(tmp_path / "nyud2_trainvaltest", (("train", 4),))
    with pytest.raises(MissingDataError, match=r"NYU Depth V2 .* get test/ from .*licence: research use"):
        load_data("nyu-depth", data_dir=tmp_path)
    (tmp_path / "nyud2_trainvaltest" / "test").mkdir()
    with pytest.raises(InputError, match="nyud2_trainvaltest/test holds no picture"):
        load_data("nyu-depth", data_dir=tmp_path)


def test_a_comparison_notices_a_changed_picture(tmp_path):
    scenes(tmp_path / "sunrgbd")
    source = Source.of("sun-rgbd", {"data_dir": str(tmp_path)})
    before = source.fingerprint()
    assert source.fingerprint() == before
    save(tmp_path / "sunrgbd" / "train" / "kitchen" / "003.png", flat((1, 2, 3), (4, 5, 6)))
    assert source.fingerprint() != before


def food(folder, **changes):
    for part, n in (("train", 12), ("dev", 4), ("test", 6)):
        lines = []
        for number in range(n):
            label = ("pad_thai", "waffles")[number % 2]
            image = f"images/{'test' if part == 'test' else 'train'}/{label}/{part}_{number}.jpg"
            save(folder / image, flat((40 * (number % 2), 128, 20 * number), height=20, width=30))
            lines.append({"id": number, "text": f"{part} \u2028{number}", "label": label, "img": image})
        for row, line in changes.get(part, {}).items():
            lines[row] |= line
        (folder / f"{part}.jsonl").write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in lines) + "\n")


def test_food(tmp_path):
    food(tmp_path / "food101", train={3: {"img": None}})
    data = load_data("food-101", data_dir=tmp_path, size=8)
    assert data.sizes == {"train": 12, "validation": 4, "test": 6}
    assert data.official_split
    assert not data.drawn_validation
    assert data.modalities["image"].describe() == "image (image 3×8×8)"
    assert data.modalities["text"].kind == "text"
    assert data.test["text"][5] == "test \u20285"
    assert data.test.y.tolist() == ["pad_thai", "waffles"] * 3
    assert np.abs(data.test["image"][5].astype(int) - np.array([40, 128, 100])[:, None, None]).max() <= 3
    assert np.flatnonzero(~data.samples.present_in("image")).tolist() == [3]
    assert data.samples.present_in("text").all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"img": "../outside.jpg"}, r"img must be a path below food101, .* got '\.\./outside\.jpg'"),
        ({"img": "/outside.jpg"}, "img must be a path below food101"),
        ({"img": 7}, "or null where there is no picture, got 7"),
        ({"label": 3}, r"dev\.jsonl: line 2 must have a text and a label"),
    ],
)
def test_other_lines_are_refused(tmp_path, change, message):
    food(tmp_path / "food101", dev={1: change})
    with pytest.raises(InputError, match=message):
        load_data("food-101", data_dir=tmp_path)


def test_pictures_that_are_not_there(tmp_path):
    food(tmp_path / "food101")
    (tmp_path / "food101" / "images" / "test" / "waffles" / "test_3.jpg").unlink()
    with pytest.raises(
        MissingDataError, match=r"lacks 1 of the pictures that its lines name: get images/test/waffles/test_3\.jpg from"
    ):
        load_data("food-101", data_dir=tmp_path)
