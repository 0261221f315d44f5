"""How much memory training on shards takes, in a process of its own, by the benchmark that prints it."""

from pathlib import Path

import pytest

from consilience.reproduction.study import load_script

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_stream.py"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not say what memory is in no file")
def test_memory_does_not_grow_with_the_data(tmp_path):
    bench = load_script(BENCHMARK)
    buffer = 16
    small, large = (
        bench.measure_memory(tmp_path / str(gigabytes), gigabytes, "npy", buffer)["large"] for gigabytes in (0.2, 0.4)
    )
    assert large["rows"] > 1.9 * small["rows"]
    grown = large["anonymous"] - small["anonymous"]
    values = (large["rows"] - small["rows"]) * bench.ROW_BYTES
    assert grown < 0.35 * values, "what grows is one value for each row: targets, parts, the order of an epoch"
    assert large["accuracy"] > 0.7
