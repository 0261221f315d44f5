"""One row and 64 rows through `predict_proba` and through `compiled()`, against the bare network on a prepared batch.

The models are small networks on three modalities of eight numbers. Times are milliseconds of processor time of the
calling thread, so that other work on the machine counts little. The three are measured in turns, in one run.
`compiled()` reads arrays alone.

    python benchmarks/bench_latency.py --calls 1000
"""

import argparse
import time

import numpy as np
import torch

import consilience as cs

METHODS = ("concat", "late", "bayes-robust")
HEADER = (
    f"{'method':13} {'rows':>4} {'input':8} {'bare p50':>9} {'p99':>7} {'predict_proba p50':>18} {'p99':>7} "
    f"{'ratio p50':>10} {'p99':>5} {'compiled p50':>13} {'p99':>7} {'ratio p50':>10} {'p99':>5}"
)


def measure(calls):
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1500)
    readings = {
        name: (rng.normal(size=(1500, 8)) + y[:, None] * (np.arange(8) % 3 == 0)).astype(np.float32)
        for name in ("vibration", "temperature", "current")
    }
    print(HEADER)
    for name in METHODS:
        model = cs.FusionClassifier(name, encoders=dict.fromkeys(readings, "mlp"), epochs=3).fit(readings, y)
        for rows in (1, 64):
            arrays = {modality: values[:rows] for modality, values in readings.items()}
            for what, given in (("arrays", arrays), ("Samples", cs.Samples.of(arrays))):
                compare(name, model, rows, what, given, calls)


def compare(name, model, rows, what, given, calls):
    trained = model.model_
    method, batch = trained.method.eval(), trained.preparation.batch(cs.Samples.of(given))

    def bare():
        with torch.no_grad():
            method(batch)

    compiled = model.compiled()
    jobs = [bare, lambda: model.predict_proba(given)]
    if what == "arrays":
        jobs.append(lambda: compiled.predict_proba(given))
    times = {job: [] for job in jobs}
    for call in range(calls + 50):
        for job, found in times.items():
            began = time.thread_time()
            job()
            if call >= 50:
                found.append(1e3 * (time.thread_time() - began))
    (low, high), (median, tail), *warm = (np.percentile(found, [50, 99]) for found in times.values())
    line = f"{name:13} {rows:4} {what:8} {low:9.3f} {high:7.3f} {median:18.3f} {tail:7.3f} {median / low:10.1f} "
    line += f"{tail / high:5.1f}"
    for middle, most in warm:
        line += f" {middle:13.3f} {most:7.3f} {middle / low:10.1f} {most / high:5.1f}"
    print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500, help="calls that are timed, of each")
    measure(parser.parse_args().calls)
