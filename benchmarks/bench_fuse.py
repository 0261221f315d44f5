"""`fuse` against a memory copy that moves as many bytes, both measured in one run: one CPU core, and a GPU if there is.

The bytes counted are the fewest possible, every logit read once and every answer written once; a copy reads one half of
them and writes the other.

A few rows are compared with the same theorem written by hand in NumPy, without any check of the input.

On a GPU answers are queued (`check=False`); beside it is printed what the same costs replayed as a CUDA graph, where
Python has no part in it, and waited for, as it is by default.

    python benchmarks/bench_fuse.py --gigabytes 1 2 4 16
"""

import argparse
import os
import statistics
import time

import numpy as np
import torch

import consilience as cs


def cpu(rows, experts=4, classes=1000, rounds=7):
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((rows, experts, classes), dtype=np.float32)
    prior = rng.dirichlet(np.full(classes, 5.0))
    present = rng.random((rows, experts)) < 0.7
    holes = logits.copy()
    holes[~present] = np.nan
    out = np.full((rows, classes), 1, np.float32)  # written to, so that its pages are there
    source = rng.standard_normal(rows * (experts + 1) * classes // 2, dtype=np.float32)
    target = source.copy()
    cases = {
        "no masks, uniform prior (target ≥ .5)": lambda: cs.fuse(logits, out=out),
        "no masks, a prior": lambda: cs.fuse(logits, prior, out=out),
        "no masks, a prior, fresh result": lambda: cs.fuse(logits, prior),
        "masks, a prior (target ≥ .25)": lambda: cs.fuse(logits, prior, present=present, out=out),
        "masks, a prior, NaN where missing (target ≥ .25)": lambda: cs.fuse(holes, prior, present=present, out=out),
    }
    print(f"CPU, one core, float32 [{rows}, {experts}, {classes}]; seconds of processor time, median of {rounds}")
    ratios: dict[str, list[float]] = {what: [] for what in cases}
    cs.fuse(logits[:1])
    for _ in range(rounds):
        for what, job in cases.items():
            copying = processor_seconds(lambda: np.copyto(target, source))
            ratios[what].append(copying / processor_seconds(job))
    speed = 2 * source.nbytes / processor_seconds(lambda: np.copyto(target, source)) / 1e9
    print(f"  copy: {speed:.1f} GB/s")
    for what, found in ratios.items():
        print(f"  {what}: {statistics.median(found):.2f} of a copy (from {min(found):.2f} to {max(found):.2f})")


def few_rows(experts=4, classes=10, rounds=300):
    """Rows for which calling costs more than computing."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    print(
        f"CPU, one core, float32 [rows, {experts}, {classes}]; µs of processor time, median (p99) of {rounds} "
        "(target ≤ 3)"
    )
    for rows in (1, 10, 100, 999):
        logits = rng.standard_normal((rows, experts, classes), dtype=np.float32)
        prior, present = rng.dirichlet(np.full(classes, 5.0)), rng.random((rows, experts)) < 0.7
        parts = {f"expert {place}": np.ascontiguousarray(logits[:, place]) for place in range(experts)}
        there = {name: present[:, place] for place, name in enumerate(parts)}
        cases = {
            "array": ((logits, prior), None),
            "array, masks": ((logits, prior, present), present),
            "mapping": ((parts, prior), None),
            "mapping, masks": ((parts, prior, there), present),
        }
        for what, (given, mask) in cases.items():
            found = [(call_seconds(by_hand, logits, prior, mask), call_seconds(call, *given)) for _ in range(rounds)]
            (plain, slow), (ours, ours_slow) = (1e6 * np.percentile(times, [50, 99]) for times in zip(*found))
            print(
                f"  {rows:4} rows, {what}: by hand {plain:.0f} ({slow:.0f}), fuse {ours:.0f} ({ours_slow:.0f}): "
                f"{ours / plain:.1f} ({ours_slow / slow:.1f}) times"
            )


def call(opinions, prior, present=None):
    return cs.fuse(opinions, prior, present=present)


def call_seconds(function, *given):
    began = time.thread_time()
    function(*given)
    return time.thread_time() - began


def by_hand(logits, prior, present=None):
    log_prior = np.log(prior)
    evidence = logits - log_prior
    if present is not None:
        evidence = np.where(present[..., None], evidence, 0)
    scores = evidence.sum(axis=1) + log_prior
    scores -= scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def processor_seconds(job):
    began = time.process_time()
    job()
    return time.process_time() - began


def gpu(gigabytes):
    if not torch.cuda.is_available():
        print("GPU: there is none here, so nothing was measured")
        return
    print(
        f"{torch.cuda.get_device_name()}, {gigabytes:g} GB of logits, 4 experts; median of 10, each of 8 calls in a row"
    )
    for dtype in (torch.float32, torch.bfloat16):
        for classes in (10, 100, 1000, 10_000):
            rows = int(gigabytes * 1e9 / (4 * classes * dtype.itemsize))
            name, least = str(dtype).removeprefix("torch."), ".6" if classes < 100 else ".85"
            print(f"  {name} [{rows}, 4, {classes}] (target ≥ {least}): {gpu_case(rows, classes, dtype)}")
            torch.cuda.empty_cache()


def gpu_case(rows, classes, dtype, experts=4):
    logits = torch.randn(rows, experts, classes, device="cuda", dtype=dtype)
    prior = np.random.default_rng(0).dirichlet(np.full(classes, 5.0))
    present = torch.rand(rows, experts, device="cuda") < 0.7
    out = torch.empty(rows, classes, device="cuda", dtype=dtype)
    source = torch.empty(rows * (experts + 1) * classes // 2, device="cuda", dtype=dtype).normal_()
    target = torch.empty_like(source)
    copying = gpu_seconds(lambda: target.copy_(source))
    plain = gpu_seconds(lambda: cs.fuse(logits, prior, out=out, check=False))
    replayed = gpu_seconds(record(lambda: cs.fuse(logits, prior, out=out, check=False)))
    waited = gpu_seconds(lambda: cs.fuse(logits, prior, out=out))
    masked = gpu_seconds(lambda: cs.fuse(logits, prior, present=present, out=out, check=False))
    answer = cs.fuse(logits.requires_grad_(), prior)
    grad = torch.randn_like(answer)
    # The backward reads gradient and answer and writes a gradient for every logit.
    backward = gpu_seconds(lambda: torch.autograd.grad(answer, logits, grad, retain_graph=True))
    logits.requires_grad_(False)
    os.environ["CONSILIENCE_TRITON"] = "0"
    eager = gpu_seconds(lambda: cs.fuse(logits, prior, present=present, out=out), repeats=1)
    os.environ["CONSILIENCE_TRITON"] = "1"
    moved = rows * (experts + 1) * classes * dtype.itemsize
    return (
        f"{copying / plain:.2f} of a copy ({moved / copying / 1e12:.2f} TB/s), replayed {copying / replayed:.2f}, "
        f"masks {copying / masked:.2f}, waited for {copying / waited:.2f}, "
        f"backward {copying / backward * (experts + 2) / (experts + 1):.2f}, masks in plain torch {copying / eager:.2f}"
    )


def record(job):
    """The job as a CUDA graph: the same work on the device, and next to none for Python."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        job()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    return graph.replay


def gpu_seconds(job, repeats=10, in_a_row=8):
    """Seconds of one of several calls in a row, so that the device does not wait for Python between them.

    A device left idle while a kernel was compiled is slow for a while: it is kept busy for a tenth of a second first.
    """
    began = time.perf_counter()
    while time.perf_counter() - began < 0.1:
        job()
        torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(in_a_row):
            job()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / in_a_row)
    return statistics.median(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=65536, help="of the CPU's measurement")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0, 4.0], help="of logits on the GPU")
    options = parser.parse_args()
    few_rows()
    cpu(options.rows)
    for gigabytes in options.gigabytes:
        gpu(gigabytes)
