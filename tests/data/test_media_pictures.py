"""Pictures of every format against Pillow and pydicom directly."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from consilience.core.errors import InputError
from consilience.data.media import dicom, pictures
from consilience.data.media.pictures import PictureDecoder
from consilience.data.media.settings import PictureSettings

rng = np.random.default_rng(0)
BICUBIC = Image.Resampling.BICUBIC


def decoder(**settings):
    return PictureDecoder(PictureSettings(**{"size": 16, "colour": "rgb", "values": "bytes"} | settings))


def encoded(picture, format, **options):
    stream = io.BytesIO()
    picture.save(stream, format, **options)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def colours(height=30, width=22):
    return Image.fromarray(rng.integers(0, 256, size=(height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("ending", ["png", "tiff", "bmp", "webp", "ppm", "gif", "jpeg"])
def test_a_picture_is_what_pillow_reads_and_resizes(ending):
    content = encoded(colours(), ending)
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB").resize((16, 16), BICUBIC))
    got, _ = decoder()(content, f"a.{ending}")
    assert got.dtype == np.uint8
    assert got.shape == decoder().shape == (3, 16, 16)
    np.testing.assert_array_equal(got, expected.transpose(2, 0, 1))
    grey, _ = decoder(colour="grey")(content, f"a.{ending}")
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("L").resize((16, 16), BICUBIC))
    assert np.abs(grey[0].astype(int) - expected).max() <= (3 if ending == "jpeg" else 0)  # a JPEG knows its own grey


@pytest.mark.parametrize(("fit", "fitted"), [("crop", ImageOps.fit), ("pad", ImageOps.pad)])
def test_crop_and_pad(fit, fitted):
    picture = colours()
    got, _ = decoder(fit=fit)(encoded(picture, "png"), "a.png")
    np.testing.assert_array_equal(got, np.asarray(fitted(picture, (16, 16), BICUBIC)).transpose(2, 0, 1))
    if fit == "pad":
        assert not got[:, :, 0].any()


def test_a_photo_stands_upright():
    picture, exif = colours(), Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    got, _ = decoder(values="bytes")(encoded(picture, "png", exif=exif), "a.png")
    expected = picture.rotate(-90, expand=True).resize((16, 16), BICUBIC)
    np.testing.assert_array_equal(got, np.asarray(expected).transpose(2, 0, 1))


@pytest.mark.parametrize("ending", ["png", "tiff", "npy"])
def test_sixteen_bits_stay_sixteen_bits(ending):
    pixels = rng.integers(0, 2**16, size=(16, 16), dtype=np.uint16)
    content = npy(pixels) if ending == "npy" else encoded(Image.fromarray(pixels), ending)
    whole, _ = decoder(colour="grey", values="float")(content, f"a.{ending}")
    np.testing.assert_array_equal(whole, pixels[None].astype(np.float32))
    upper, _ = decoder(colour="grey")(content, f"a.{ending}")
    np.testing.assert_array_equal(upper, (pixels >> 8)[None])


def test_floats():
    pixels = rng.normal(size=(30, 22)).astype(np.float32)
    expected = np.asarray(Image.fromarray(pixels).resize((16, 16), BICUBIC))
    for content, name in ((npy(pixels), "a.npy"), (encoded(Image.fromarray(pixels), "tiff"), "a.tif")):
        got, _ = decoder(values="float")(content, name)
        np.testing.assert_array_equal(got, np.stack([expected] * 3))
        with pytest.raises(InputError, match="not pictures of bytes"):
            decoder()(content, name)
    pixels[0, 0] = np.nan
    with pytest.raises(InputError, match="NaN"):
        decoder(values="float")(npy(pixels), "a.npy")


def test_the_channel_of_an_array_is_found():
    pixels = np.asarray(colours(16, 16))
    for array in (pixels, pixels.transpose(2, 0, 1)):
        np.testing.assert_array_equal(decoder()(npy(array), "a.npy")[0], pixels.transpose(2, 0, 1))
        grey, _ = decoder(colour="grey", values="float")(npy(array), "a.npy")
        assert np.abs(grey - np.asarray(Image.fromarray(pixels).convert("L"))).max() < 1
    for shape in ((4, 4, 4), (5,), (0, 3), (1, 2, 3, 4)):
        with pytest.raises(InputError, match="no picture of one or three channels"):
            decoder()(npy(np.zeros(shape, dtype=np.uint8)), "a.npy")
    with pytest.raises(InputError, match="Python objects"):
        decoder()(npy(np.array([[None]])), "a.npy")


def dicom_file(pixels, *, slope=1, intercept=0, photometric="MONOCHROME2", syntax=None):
    pydicom = pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax or ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    file = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    file.Rows, file.Columns = pixels.shape[:2]
    file.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    file.PlanarConfiguration = 0
    file.PhotometricInterpretation = photometric if pixels.ndim == 2 else "RGB"
    file.BitsAllocated = 8 * pixels.dtype.itemsize
    file.BitsStored = 12 if pixels.dtype.itemsize == 2 else 8
    file.HighBit, file.PixelRepresentation = file.BitsStored - 1, 0
    file.RescaleSlope, file.RescaleIntercept = slope, intercept
    file.PixelData = pixels.tobytes()
    stream = io.BytesIO()
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


class TestDicom:
    def test_numbers_are_rescaled(self, tmp_path):
        pixels = rng.integers(0, 4096, size=(16, 16), dtype=np.uint16)
        content = dicom_file(pixels, slope=2, intercept=-1024)
        (tmp_path / "a.dcm").write_bytes(content)
        made = PictureDecoder.learn("scan", None, PictureSettings(size=16), [str(tmp_path / "a.dcm")])
        assert (made.settings.colour, made.settings.values) == ("grey", "float")
        np.testing.assert_array_equal(made(content, "a.dcm")[0], 2 * pixels[None].astype(np.float32) - 1024)

    def test_white_and_colour(self):
        pixels = rng.integers(0, 4096, size=(16, 16), dtype=np.uint16)
        got = dicom.read_dicom(dicom_file(pixels, photometric="MONOCHROME1"))
        np.testing.assert_array_equal(got, 4095 - pixels[None].astype(np.float32))
        colour = rng.integers(0, 256, size=(5, 4, 3), dtype=np.uint8)
        np.testing.assert_array_equal(dicom.read_dicom(dicom_file(colour)), colour.transpose(2, 0, 1))

    def test_limits(self, monkeypatch):
        content = dicom_file(np.zeros((16, 16), dtype=np.uint16))
        with pytest.raises(InputError, match="deflated"):
            dicom.read_dicom(content + b"1.2.840.10008.1.2.1.99")
        monkeypatch.setattr(dicom, "_MOST_PIXELS", 255)
        with pytest.raises(InputError, match="16×16 pixels"):
            dicom.read_dicom(content)


def test_what_is_automatic_follows_from_the_first_pictures(tmp_path):
    def learned(*pictures):
        names = [str(tmp_path / f"{number}.png") for number in range(len(pictures))]
        for name, picture in zip(names, pictures):
            picture.save(name)
        (tmp_path / "broken.png").write_bytes(b"x")
        made = PictureDecoder.learn("photo", None, PictureSettings(size=8), [str(tmp_path / "broken.png"), *names])
        return made.settings.colour, made.settings.values, made.shape, made.dtype

    grey, deep = colours().convert("L"), Image.fromarray(np.full((4, 4), 999, dtype=np.uint16))
    assert learned(grey, grey) == ("grey", "bytes", (1, 8, 8), np.uint8)
    assert learned(grey, colours()) == ("rgb", "bytes", (3, 8, 8), np.uint8)
    assert learned(deep, grey) == ("grey", "float", (1, 8, 8), np.float32)


def test_bombs_and_programs(monkeypatch):
    with pytest.raises(InputError, match="9440×9440 pixels"):
        decoder()(encoded(Image.new("1", (9440, 9440)), "png"), "a.png")
    with pytest.raises(OSError, match="cannot identify"):
        decoder()(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", "a.png")
    monkeypatch.setattr(pictures, "_MOST_PIXELS", 10)
    with pytest.raises(InputError, match="4×4 pixels"):
        decoder()(npy(np.zeros((4, 4))), "a.npy")


def test_one_picture_in_each_file():
    first, second = colours(), colours()
    with pytest.raises(InputError, match="it holds several pictures: save one in each file"):
        decoder()(encoded(first, "tiff", save_all=True, append_images=[second]), "a.tif")
    preview = encoded(first, "tiff", save_all=True, append_images=[second.resize((5, 5))])
    np.testing.assert_array_equal(decoder()(preview, "a.tif")[0], decoder()(encoded(first, "png"), "a.png")[0])


def test_samples_are_bounded():
    with pytest.raises(InputError, match="more than"):
        PictureDecoder.restore("photo", "image", PictureSettings(size=4096 * 4, colour="rgb", values="bytes"))
    with pytest.raises(InputError, match="kind image"):
        PictureDecoder.restore("photo", "vector", PictureSettings(colour="rgb", values="bytes"))
