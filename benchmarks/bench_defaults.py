"""All defaults against tuned scikit-learn: accuracy and log-loss, clean and corrupted, by the number of training rows.

Every contender is trained on all training rows, on 300 and on 100, and judged on the same test samples. A set with an
official test part keeps it; there, with all rows, seeds differ only in what the contenders draw themselves. Each fit
has one thread of a CPU. The log-loss is scikit-learn's, which clips probabilities to [ε, 1 − ε], ε = 2.2e-16.
Seconds are those of the processor.

    python benchmarks/bench_defaults.py --sets all --seeds 10 --jobs 16 --keep defaults.json
    python benchmarks/bench_defaults.py --show defaults.json --markdown

A run can be cut off, by `--minutes` or Ctrl-C: every job is kept as it ends, and the same command goes on. Seeds are
outermost, then sets from small to large, so that what there is compares all contenders. For a machine without the data
and polars, `--keep-sets FOLDER` writes the sets as arrays here, and `--sets-from FOLDER` reads them there.

With `--choose` a contender also learns from 80 % of its training rows and is judged by the rest, which are held out in
blocks where the test rows are. What choosing by that log-loss loses to hindsight is then shown.
"""

import argparse
import json
import os
import platform
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import default_contenders
import default_sets
import default_tables
import numpy as np
import sklearn
import torch
from sklearn.metrics import accuracy_score, log_loss
from threadpoolctl import threadpool_limits
from timed_runs import results_within

from consilience import __version__
from consilience.comparison.job import import_training
from consilience.core.errors import MissingDataError
from consilience.training.shared_training import sharing

# Seconds of one core that a training takes, for the order of the jobs: of a method for each row of each modality, of a
# rival for each row, feature and class.
OURS = {"auto": 1e-2, "bayes-robust": 5e-3, "bayes": 1.5e-3}
OTHER = 1e-3
RIVALS = {"logistic": 5e-7, "extra-trees": 1e-7, "svc": 5e-7, "voting": 1e-6, "stacking": 2e-6}
# Contenders with experts in common, which one process trains once.
TOGETHER = ("auto", "bayes-robust")
WRITE_EVERY = 5  # seconds between two writings of the file
SHOWN_EVERY = 20  # seconds between two lines of progress


def measure(name, size, seed, contenders, choose=False):
    """Train contenders once and judge them: each one's figures, or why there are none."""
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = default_sets.draw(name, size, seed)
        import_training("auto", {})  # which is no part of a training
        found = {}
        for contender in contenders:
            try:
                found[contender] = train_and_judge(contender, parts, seed, (name, size, seed))
                if choose:
                    found[contender]["validation"] = validate(name, size, seed, contender)
            except Exception as error:  # one failure must not end a run of hours; it is shown with the tables
                found[contender] = {"error": f"{type(error).__name__}: {error}"}
        return found


def train_and_judge(contender, parts, seed, scope):
    """The figures of a contender; experts that one before it has trained are used again, as in a comparison."""
    begun, busy = time.perf_counter(), time.process_time()
    with sharing(scope) as shared:
        predict = default_contenders.fit(contender, parts.train, seed)
        saved = shared.saved_seconds  # which it would have taken alone
    seconds, wall = time.process_time() - busy + saved, time.perf_counter() - begun + saved
    return {"seconds": round(seconds, 3), "wall": round(wall, 3), **judge(predict, parts, seed)}


def judge(predict, parts, seed):
    """Accuracy in per cent and log-loss by condition, and which clean test samples were right, as bits."""
    classes, y = np.unique(parts.train.y), parts.test.y
    found = {"accuracy": {}, "log_loss": {}}
    for title, samples in default_sets.shown(parts, seed):
        p = predict(samples).astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        said = classes[p.argmax(axis=1)]
        found["accuracy"][title] = round(100 * float(accuracy_score(y, said)), 4)
        found["log_loss"][title] = round(float(log_loss(y, p, labels=classes)), 5)
        if title == "clean":
            found["right"] = np.packbits(said == y).tobytes().hex()
            found["tested"] = len(y)
    return found


def validate(name, size, seed, contender):
    """The log-loss on a fifth of the training rows, of a contender that learned from the others."""
    learned, judged = default_sets.hold_out(name, size, seed)
    classes = np.unique(learned.y)
    known = np.isin(judged.y, classes)
    with sharing((name, size, seed)):
        predict = default_contenders.fit(contender, learned, seed)
    p = predict(judged.without_targets()).astype(np.float64)
    return round(float(log_loss(judged.y[known], p[known] / p[known].sum(axis=1, keepdims=True), labels=classes)), 5)


def plan(sets, sizes, seeds, contenders):
    """All jobs (set, size, seed, contender) → seconds, and sentences on what is left out.

    Seeds are outermost, then sets from small to large, so that a run that is stopped early has judged all contenders
    on some seeds and sets.
    """
    jobs, of_set, sentences = {}, Counter(), Counter()
    for name in sets:
        try:
            source = default_sets.read(name)
        except MissingDataError as error:
            sentences[f"{name}: left out, {error}"] += 1
            continue
        for size in sizes:
            for seed in range(seeds):
                try:
                    rows = len(default_sets.draw(name, size, seed).train)
                except default_sets.TooFewRows as reason:
                    sentences[f"size {size} left out: {reason}"] += 1
                    continue
                about = (source.samples.names, rows, source.features, source.classes)
                for contender in contenders:
                    try:
                        default_contenders.check(contender, *about)
                    except default_contenders.LeftOut as reason:
                        where = "" if "registered" in str(reason) else f" of {name}"
                        sentences[f"{contender} left out{where}: {reason}"] += 1
                        continue
                    jobs[name, size, seed, contender] = cost(contender, *about)
                    of_set[name, size, seed] += jobs[name, size, seed, contender]
    order = sorted(jobs, key=lambda job: (job[2], of_set[job[:3]], -jobs[job]))
    return {job: jobs[job] for job in order}, list(sentences)


def cost(contender, names, rows, features, classes):
    if contender == "boosting":
        return default_contenders.boosting_seconds(rows, features, classes)
    if contender in RIVALS:
        return RIVALS[contender] * rows * features * classes
    return OURS.get(default_contenders.split_name(contender)[1], OTHER) * rows * len(names)


def read_kept(paths):
    """The jobs of stored files; a later file goes before an earlier one."""
    found = {}
    for path in paths:
        for name, by_size in json.loads(path.read_text(encoding="utf-8"))["figures"].items():
            for size, by_seed in by_size.items():
                for seed, by_contender in by_seed.items():
                    for contender, figures in by_contender.items():
                        found[name, read_size(size), int(seed), contender] = figures
    return found


def write_kept(path, found):
    """Set → size → seed → contender → figures; written to a file beside and moved, so that no file is half written."""
    nested = {}
    for (name, size, seed, contender), figures in sorted(found.items(), key=lambda item: [str(key) for key in item[0]]):
        nested.setdefault(name, {}).setdefault(str(size), {}).setdefault(str(seed), {})[contender] = figures
    versions = {"consilience": __version__, "scikit-learn": sklearn.__version__, "torch": torch.__version__}
    about = versions | {"python": platform.python_version()}
    half = path.with_name(path.name + ".half")
    half.write_text(json.dumps({"about": about, "figures": nested}, ensure_ascii=False) + "\n", encoding="utf-8")
    half.replace(path)


def compute(jobs, found, asked) -> Iterator[str]:
    """Run the jobs that are not found yet, add them to `found`, write them, and yield lines of progress."""
    lacking = {"validation"} if asked.choose else set()
    todo = [job for job in jobs if job not in found or "error" in found[job] or not lacking <= found[job].keys()]
    yield f"{len(todo)} jobs to run, some {sum(jobs[job] for job in todo):.0f} s of one core"
    begun = written = told = time.monotonic()
    tasks = [(group, asked.choose) for group in grouped(todo)]
    done = 0
    try:
        for of_group in results_within(run, tasks, asked.jobs, asked.minutes):
            found |= of_group
            done += len(of_group)
            now = time.monotonic()
            if asked.keep is not None and now - written > WRITE_EVERY:
                write_kept(asked.keep, found)
                written = now
            if now - told > SHOWN_EVERY:
                last = " ".join(map(str, next(iter(of_group))))
                yield f"{done} of {len(todo)} jobs after {now - begun:.0f} s, the last: {last}"
                told = now
    finally:  # also after Ctrl-C
        if asked.keep is not None and done:
            write_kept(asked.keep, found)
    if done < len(todo):
        yield f"{len(todo) - done} of {len(todo)} jobs did not end within {asked.minutes:g} minutes"


def grouped(jobs):
    """Lists of jobs for one process each, in their order."""
    groups = {}
    for job in jobs:
        key = job[:3] if job[3] in TOGETHER else job
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def run(jobs, choose):
    """The figures of jobs of one set, size and seed."""
    found = measure(*jobs[0][:3], [job[3] for job in jobs], choose)
    return {job: found[job[3]] for job in jobs}


def read_size(word):
    return word if word == default_sets.ALL else int(word)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals = tuple(default_contenders.RIVALS)
    parser.add_argument("--sets", nargs="+", choices=[*default_sets.SETS, "all"], default=["wine", "breast-cancer"])
    parser.add_argument("--sizes", nargs="+", type=read_size, default=["all", 300, 100], help="training rows, or all")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--contenders",
        nargs="+",
        default=[*default_contenders.OURS, "rivals"],
        help=f"methods by name, yesterday:METHOD, {', '.join(rivals)}, or rivals for all of these",
    )
    parser.add_argument("--judged", default="auto", help="the contender whose regret is shown")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each computes on one core")
    parser.add_argument("--minutes", type=float, help="end after so many minutes; jobs under way are lost")
    parser.add_argument("--keep-sets", type=Path, help="write the sets as arrays into a folder and compute nothing")
    parser.add_argument("--sets-from", type=Path, help="read the sets from such a folder")
    parser.add_argument("--choose", action="store_true", help="measure also what choosing by log-loss would choose")
    parser.add_argument("--keep", type=Path, help="a JSON file for all figures; what it holds is not computed again")
    parser.add_argument("--again", nargs="+", default=[], help="contenders that are computed again nevertheless")
    parser.add_argument("--show", type=Path, nargs="+", help="print the figures of such files and compute nothing")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    asked.sets = list(default_sets.SETS) if "all" in asked.sets else asked.sets
    named = [each for one in asked.contenders for each in (rivals if one == "rivals" else [one])]
    asked.contenders = list(dict.fromkeys(named))
    return asked


def main():
    asked = read_arguments()
    if asked.show:
        found = read_kept(asked.show)
        default_tables.show(found, asked.judged, asked.markdown)
        return
    if asked.keep_sets is not None:
        print(f"{default_sets.keep(asked.sets, asked.keep_sets) / 1e6:.1f} MB in {asked.keep_sets}")
        return
    if asked.sets_from is not None:
        os.environ[default_sets.KEPT] = str(asked.sets_from)
    found = read_kept([asked.keep]) if asked.keep is not None and asked.keep.is_file() else {}
    jobs, sentences = plan(asked.sets, asked.sizes, asked.seeds, asked.contenders)
    found = {job: figures for job, figures in found.items() if job not in jobs or job[3] not in asked.again}
    for line in chain(sentences, compute(jobs, found, asked)):
        print(line, flush=True)
    default_tables.show({job: found[job] for job in found if job in jobs}, asked.judged, asked.markdown)


if __name__ == "__main__":
    main()
