"""Damaged and hostile files of every format: one error of the library that names the file, before memory is taken."""

import bz2
import gzip
import io
import json
import lzma
import struct
import tracemalloc
import wave
import zipfile
from contextlib import suppress

import numpy as np
import polars
import pytest
import scipy.io
from PIL import Image

from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.data.files import parquet_trial, size_limits, table_reading
from consilience.data.files.arrays import read_folder, read_npz
from consilience.data.files.idx import read_idx
from consilience.data.files.json_lines import read_json_lines
from consilience.data.files.mat_arrays import read_mat
from consilience.data.files.opinion_labels import open_labels
from consilience.data.files.r_data import read_r_data
from consilience.data.files.table_reading import read_header, read_table, reading
from consilience.data.media.picture_folders import read_image
from consilience.data.media.recordings import read_recordings
from r_files import flags, integers, pairs, saved, sized, text


@pytest.fixture
def small_limit(monkeypatch):
    """Files unpack to no more than 64 KiB, so that tests need no gigabytes."""
    monkeypatch.setattr(size_limits, "ALWAYS_ALLOWED", 2**16)


def npy(header, content=b""):
    header = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def archive(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


CLAIM = "{'descr': '<f8', 'fortran_order': False, 'shape': (11625000000,), }"  # 93 GB


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (CLAIM, "93000000000 bytes; there are 8"),
        (CLAIM.replace("11625000000", "-1"), "its header says"),
        (CLAIM.replace("(11625000000,)", "(2**70,)"), "not a numpy file"),
        (CLAIM.replace("'<f8'", "'<U0'"), "its header says"),
        (CLAIM.replace("'<f8'", "'|O'"), "Python objects"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1,", "not a numpy file"),
        ("{'descr': ''' '<f8', 'shape': (1,), }", "not a numpy file"),
        ("(" * 110, "not a numpy file"),
    ],
)
def test_headers_of_arrays(tmp_path, header, message):
    tracemalloc.start()
    try:
        content = npy(header, b"\0" * 8)
        with pytest.raises(InputError, match=message):
            read_npz(archive(tmp_path / "t.npz", {"a.npy": content}))
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_folder(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_numbers_that_are_no_characters(tmp_path):
    content = npy("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }", b"\0\0\0\x7f")
    (tmp_path / "y.npy").write_bytes(content)
    with pytest.raises(InputError, match="with the character 2130706432"):
        read_folder(tmp_path)


def test_archives(tmp_path, small_limit):
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(10**5))
    with pytest.raises(InputError, match=r"t\.npz would unpack from \d+ bytes"):
        read_npz(archive(tmp_path / "t.npz", {"a.npy": zeros.getvalue()}, zipfile.ZIP_DEFLATED))
    with pytest.raises(InputError, match="packed by method 14"):
        read_npz(archive(tmp_path / "t.npz", {"a.npy": npy(CLAIM)}, zipfile.ZIP_LZMA))
    path = archive(tmp_path / "t.npz", {"a.npy": npy(CLAIM)})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # encrypted, says the directory
    path.write_bytes(content)
    with pytest.raises(InputError, match="is encrypted"):
        read_npz(path)
    with pytest.raises(InputError, match="two arrays of the same name"):
        read_npz(archive(path, {"a": npy(CLAIM), "a.npy": npy(CLAIM)}))


@pytest.mark.parametrize("compressed", [False, True])
def test_every_byte_of_a_matlab_file_may_be_damaged(tmp_path, compressed):
    content = {"gt_train": np.arange(6)[:, None], "x1_train": np.ones((6, 2)), "c": np.array([1, "a"], dtype=object)}
    path = tmp_path / "t.mat"
    scipy.io.savemat(path, content, do_compression=compressed)
    whole = path.read_bytes()
    np.testing.assert_array_equal(read_mat(path)["x1_train"], np.ones((6, 2)))
    for place in range(128, len(whole)):
        path.write_bytes(whole[:place] + b"\x7f" + whole[place + 1 :])
        with suppress(InputError):
            read_mat(path)


@pytest.mark.parametrize("layout", ["4", "5"])
def test_matlab_files_as_scipy_reads_them(tmp_path, layout):
    content = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([[True, False]]), "e": np.zeros((0, 3))}
    content |= {} if layout == "4" else {"c": np.arange(24, dtype=np.int16).reshape(2, 3, 4)}
    path = tmp_path / "t.mat"
    scipy.io.savemat(path, {**content, "text": "hello", "z": np.array([[1j]])}, format=layout)
    found, expected = read_mat(path), scipy.io.loadmat(path)
    assert found.keys() == content.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])


def test_a_matlab_file_that_unpacks_without_end(tmp_path, small_limit):
    scipy.io.savemat(tmp_path / "t.mat", {"a": np.zeros(10**5)}, do_compression=True)
    with pytest.raises(InputError, match=r"t\.mat would unpack"):
        read_mat(tmp_path / "t.mat")


def test_packed_tables(tmp_path, small_limit):
    rows = b"x,y\n" + b"1,a\n" * 50_000
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "t.csv").write_bytes(gzip.compress(rows))
    assert read_header(tmp_path / "t.csv.gz") == ["x", "y"]
    with pytest.raises(InputError, match=r"t\.csv\.gz would unpack"):
        read_table(tmp_path / "t.csv.gz", ["x"])
    with pytest.raises(InputError, match=r"t\.csv is compressed"):
        read_header(tmp_path / "t.csv")
    polars.DataFrame({"x": [1.0] * 50_000}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet would unpack"):
        read_table(tmp_path / "t.parquet", ["x"])


def test_a_panic_of_polars_is_an_error(tmp_path):
    def panic():
        raise polars.exceptions.PanicException("index out of bounds\nsecond line")

    with pytest.raises(InputError, match=r"t\.csv cannot be read as a table: index out of bounds$"):
        reading(tmp_path / "t.csv", panic)


def test_a_parquet_file_that_ends_its_process(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    polars.DataFrame({"x": [1.0, 2.0]}).write_parquet(path)
    parquet_trial.try_parquet(path, ["x"])
    with pytest.raises(InputError, match=r"t\.parquet cannot be read as a table: .*nothing"):
        parquet_trial.try_parquet(path, ["nothing"])
    ended = "import os, sys; print('memory allocation of 9 bytes failed', file=sys.stderr, flush=True); os.abort()"
    monkeypatch.setattr(parquet_trial, "_PROGRAM", ended)
    with pytest.raises(InputError, match=r"t\.parquet cannot be read as a table: memory allocation of 9 bytes failed"):
        read_table(path, ["x"])
    with pytest.raises(InputError, match="memory allocation"):
        list(table_reading.number_batches(path, ["x"], 10))
    monkeypatch.setattr(parquet_trial, "_PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(parquet_trial, "_SECONDS", 0.2)
    with pytest.raises(InputError, match="takes more than"):
        read_table(path, ["x"])


def test_labels_that_are_no_text(tmp_path):
    np.save(tmp_path / "y.npy", np.array([b"\xff\xfe", b"a"]))
    with pytest.raises(InputError, match=r"y\.npy is truncated or not text in UTF-8"):
        open_labels(tmp_path / "y.npy").count()


@pytest.mark.parametrize("line", ["[" * 100_000, '{"text": "a', "\ud800", json.dumps({"text": 3}), "1" * 5000])
def test_json_lines(tmp_path, line):
    (tmp_path / "t.jsonl").write_bytes(line.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=r"t\.jsonl"):
        read_json_lines(tmp_path / "t.jsonl", ["text"])


def test_pictures(tmp_path):
    path = tmp_path / "a.png"
    # A picture of one bit a pixel: 11 kB on disk, 267 MB in colour.
    Image.new("1", (9_440, 9_440)).save(path)
    with pytest.raises(InputError, match=r"a\.png has 9440×9440 pixels"):
        read_image(path, 8)
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(InputError, match=r"a\.png is truncated or not a picture"):
        read_image(path, 8)


def test_recordings(tmp_path, small_limit):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2000))
    sound = buffer.getvalue()
    for name, content in {"short": sound[:-100], "tiny": sound[:30], "odd": sound[:22] + b"\0\0" + sound[24:]}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.wav").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.wav"):
            read_recordings(folder)
    with pytest.raises(InputError, match=r"t\.zip would unpack"):
        read_recordings(archive(tmp_path / "t.zip", {"a.wav": sound + bytes(10**6)}, zipfile.ZIP_DEFLATED))


def test_idx_files(tmp_path, small_limit):
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(InputError, match=r"t\.gz would unpack"):
        read_idx(path, 3)
    # 2**64 values, which overflow to none
    path.write_bytes(gzip.compress(bytes((0, 0, 8, 4)) + struct.pack(">4I", *[2**16] * 4)))
    with pytest.raises(InputError, match="should hold 65536×65536×65536×65536 bytes and holds 0"):
        read_idx(path, 4)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_r_files_that_unpack_without_end(tmp_path, small_limit, pack):
    pytest.importorskip("rdata")
    path = tmp_path / "t.rda"
    path.write_bytes(pack(saved({"n": integers([5])}) + bytes(10**6)))
    with pytest.raises(InputError, match=r"t\.rda would unpack"):
        read_r_data(path)
    path.write_bytes(pack(pack(saved({"n": integers([5])}))))
    with pytest.raises(InputError, match="compressed twice"):
        read_r_data(path)


def test_a_sequence_of_r_that_is_too_long(tmp_path):
    pytest.importorskip("rdata")
    # 1:2000000000 as R stores it: the class of the sequence, then length, start and step.
    start = struct.pack(">3i", 3, 0x40301, 0x30500) + sized(b"UTF-8")
    kind = flags(2) + flags(1) + text("compact_intseq") + flags(2) + flags(1) + text("base") + flags(2)
    kind += integers([13]) + struct.pack(">i", 254)
    state = flags(14) + struct.pack(">i", 3) + struct.pack(">3d", 2e9, 1, 1)
    sequence = flags(238) + kind + state + struct.pack(">i", 254)
    (tmp_path / "t.rda").write_bytes(b"RDX3\nX\n" + start + pairs({"n": sequence}))
    with pytest.raises(InputError, match=r"t\.rda would unpack"):
        read_r_data(tmp_path / "t.rda")


def test_a_compiled_function_of_r_takes_no_memory(tmp_path):
    rdata = pytest.importorskip("rdata")
    # A function's code says first how many of its parts are repeated: here 2**31 - 1, a list of 16 GB.
    start = struct.pack(">3i", 3, 0x40301, 0x30500) + sized(b"UTF-8")
    function = flags(21) + struct.pack(">i", 2**31 - 1) + integers([1]) + struct.pack(">i", 0)
    (tmp_path / "t.rda").write_bytes(b"RDX3\nX\n" + start + pairs({"f": function}))
    with pytest.raises(InputError, match="compiled function"):
        read_r_data(tmp_path / "t.rda")
    few = flags(21) + struct.pack(">i", 3) + integers([1]) + struct.pack(">i", 0)
    read_elsewhere = rdata.parser.parse_data(b"RDX3\nX\n" + start + pairs({"f": few}), extension=".rda")
    assert read_elsewhere.object.value[0].info.type.name == "BCODE"


def test_a_table_that_is_no_text(tmp_path):
    for content in (b"x,y\n\xff\xfe,a\n" * 3, b"\xff\xfe\xfa,y\n1,a\n", b"", b"\0\0\0", b'"x,y\n1,a\n'):
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(InputError):
            load_data(tmp_path / "t.csv", target="y", modalities={"m": "x"})
