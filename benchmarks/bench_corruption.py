"""Noise addressed by sample against noise drawn in sequence: our normals and numpy's, of the same size, in one run."""

import time

import numpy as np

from consilience.core.samples import Samples
from consilience.corruption import Corruptor, Noise

SHAPES = {"views of 6 features": (300_000, 6), "28 × 28 images": (10_000, 784), "3 × 112 × 112 images": (200, 37_632)}


def best_of(repeats, job):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    rng, noise = np.random.default_rng(0), Noise(0, "image", "gaussian")
    for what, (n, features) in SHAPES.items():
        index = np.arange(n)
        ours = best_of(5, lambda index=index, features=features: noise.normal(index, (features,)))
        single = best_of(5, lambda n=n, features=features: rng.standard_normal((n, features), dtype=np.float32))
        double = best_of(5, lambda n=n, features=features: rng.normal(size=(n, features)))
        print(
            f"{what}: {n * features / ours / 1e6:.0f} million normals a second, {double / ours:.2f} × the speed of "
            f"Generator.normal (float64), {single / ours:.2f} × that of standard_normal in float32"
        )
    samples = Samples.of({"image": rng.normal(size=(10_000, 1, 28, 28)).astype(np.float32)})
    corruptor = Corruptor(samples)
    corruptor.apply(samples[:10])  # measures the reference
    values = samples["image"]
    corrupting = best_of(5, lambda: corruptor.apply(samples, "gaussian", 5, probability=1))
    adding = best_of(5, lambda: values + 5 * rng.standard_normal(values.shape, dtype=np.float32))
    print(f"corrupting 10 000 images: {adding / corrupting:.2f} × the speed of adding numpy's float32 noise")


if __name__ == "__main__":
    main()
