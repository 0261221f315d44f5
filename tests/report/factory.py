"""Findings as a comparison would make them, from invented but plausible numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from consilience.comparison.chosen_method import Choice, Published
from consilience.comparison.results import Findings

HOSTILE = "<script>alert('x')</script> & «ü|_$^%»"
MODALITIES = ("top_left", "top_right", "bottom_left", "bottom_right")
# accuracy when clean, what is lost at the highest level, how fast training is, how well trust follows corruption
CHARACTERS = {
    "late": (0.962, 0.30, 1.9, 0.0),
    "concat": (0.981, 0.42, 2.3, None),
    "early": (0.978, 0.47, 1.2, None),
    "align": (0.979, 0.40, 2.9, None),
    "qmf": (0.968, 0.16, 4.1, 0.8),
    "late-probs": (0.958, 0.21, 1.9, 0.3),
    "best-unimodal": (0.742, 0.24, 6.0, 1.0),
    HOSTILE: (0.930, 0.33, 11.0, 0.5),
}


def make_findings(
    methods: Sequence[str] | None = None,
    *,
    sets: Sequence[str] = ("digits",),
    corruptions: Sequence[str] = ("gaussian", "salt-and-pepper"),
    levels: Sequence[float] = (0.0, 5.0, 10.0),
    seeds: int = 10,
    task: str = "classification",
    trust: bool = True,
    probabilities: bool = True,
    skipped: Sequence[tuple[str, str]] = (("mult", "it reads sequence, tokens, not vector 'top_left' of shape [16]"),),
    failed: Sequence[tuple[str, int, str]] = (),
    modalities: Sequence[str] = MODALITIES,
    chosen: str = "",
) -> Findings:
    names = list(CHARACTERS if methods is None else methods)
    rng = np.random.default_rng(7)
    metric = "accuracy" if task == "classification" else "mse"
    values, weights, bins, timings = [], [], [], []
    for place, (name, method) in enumerate(product(sets, names)):
        clean, loss, speed, follows = CHARACTERS.get(
            method, (0.90 + 0.004 * (place % 20), 0.2 + 0.013 * place, 3.0, None)
        )
        for seed in range(seeds):
            luck = rng.normal(0, 0.006)
            for corruption, level in product(corruptions, levels):
                noise = np.random.default_rng([place, seed, int(100 * level)]).normal(0, 0.004 + 0.001 * level)
                hardness = level / 10 * (1.0 if corruption == corruptions[0] else 0.55)
                accuracy = float(np.clip(clean - loss * hardness**1.3 + luck + noise, 0, 1))
                key = {"set": name, "method": method, "seed": seed, "corruption": corruption, "level": level}
                for measured, value in _measure(task, accuracy, hardness, probabilities).items():
                    values.append({**key, "metric": measured, "value": value})
                if follows is not None and trust:
                    for modality, share in _trust(modalities, follows * hardness, luck).items():
                        weights.append({**key, "modality": modality, "trust": share})
            timings.append(
                {
                    "set": name,
                    "method": method,
                    "seed": seed,
                    "training_seconds": speed * float(rng.uniform(0.8, 1.25)),
                    "prediction_seconds": 0.004 * speed,
                    "parameters": int(5000 * speed),
                    "epochs": int(rng.integers(20, 40)),
                    "device": "cpu",
                }
            )
        if probabilities and task == "classification":
            bins += _bins(name, method, corruptions, levels, clean, loss)
    frame = pl.DataFrame(values)
    findings = Findings(
        title=f"Which fusion method for {' and '.join(sets)}?",
        command=f"consilience compare {' '.join(sets)} --corruption {' '.join(corruptions)} --methods '{HOSTILE}'",
        task=task,
        metric=metric,
        larger_is_better=task == "classification",
        reference="late",
        sets={name: describe(name, task, modalities) for name in sets},
        methods=[
            *names,
            *(method for method, _ in skipped),
            *dict.fromkeys(method for method, _, _ in failed if method not in names),
        ],
        corruptions=list(corruptions),
        levels=list(levels),
        seeds=list(range(seeds)),
        values=frame,
        trust=pl.DataFrame(weights),
        reliability=pl.DataFrame(bins),
        differences=pl.DataFrame(),
        ranks=pl.DataFrame(),
        timings=pl.DataFrame(timings),
        skipped=pl.DataFrame(
            [{"set": name, "method": method, "reason": why} for name in sets for method, why in skipped]
        ),
        failed=pl.DataFrame(
            [
                {"set": name, "method": method, "seed": seed, "error": why}
                for name in sets
                for method, seed, why in failed
            ]
        ),
        papers={
            "qmf": "Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, eq. 9",
            "concat": "Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2",
        },
        notes=[f"{seeds} seeds cannot reach significance here: a sign test needs at least 6."] if seeds < 6 else [],
        versions={"consilience": "0.1.0", "torch": "2.13.0", "python": "3.11.2", "platform": "Linux x86_64"},
        settings={"epochs": 60, "batch_size": 64, "learning rate": 0.001, "probability": 0.5, "tune": None},
        created="2025-06-01 12:00 UTC",
    )
    if len(frame) and names and chosen:
        findings.choices = {name: _choice(findings, name, chosen) for name in sets}
        findings.hit_trust = _hit_trust(findings, modalities)
        if task == "classification":
            findings.confusion = _confusion(findings, chosen)
    if len(frame):
        findings.differences, findings.best = _compare(findings, seeds)
        if len(sets) > 1:
            findings.ranks = _rank(findings)
    return findings


def _choice(findings: Findings, name: str, chosen: str) -> Choice:
    others = [method for method in findings.timings["method"].unique(maintain_order=True) if method != chosen]
    scores = {chosen: 0.11, **{method: 0.2 + 0.01 * place for place, method in enumerate(others)}}
    published = Published("best", chosen, 0, 1438, True, ((120,), (90,)), ("steps", "steps"), 359, {"accuracy": 0.968})
    shares = {method: 0.87 if method == chosen else 0.0 for method in scores}
    return Choice(name, chosen, "nll", scores, shares, tuple(others[:1]), len(findings.seeds), True, published)


def _hit_trust(findings: Findings, modalities: Sequence[str]) -> pl.DataFrame:
    rows = []
    for row in findings.trust.filter(pl.col("level") > 0).iter_rows(named=True):
        place = modalities.index(row["modality"])
        sound = 1 / len(modalities) + 0.02 * place
        kept = {key: row[key] for key in ("set", "method", "seed", "corruption", "level", "modality")}
        rows.append({**kept, "sound": sound, "hit": sound * (1 - 0.06 * row["level"])})
    return pl.DataFrame(rows)


def _confusion(findings: Findings, chosen: str) -> pl.DataFrame:
    rows = []
    for name, about in findings.sets.items():
        labels = [str(known["class"]) for known in about["classes"]]
        for actual, label in enumerate(labels):
            for predicted, other in enumerate(labels):
                count = 330 if actual == predicted else 14 if predicted == (actual + 1) % len(labels) else 0
                cell = {"set": name, "method": chosen, "actual": label, "predicted": other}
                rows.append({**cell, "share": count / 344, "samples": count})
    return pl.DataFrame(rows)


def describe(name: str, task: str, modalities: Sequence[str]) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": name,
        "description": "8×8 handwritten digits of scikit-learn, seen as four quadrants",
        "licence": "CC BY 4.0 (UCI, Alpaydin and Kaynak, Optical Recognition of Handwritten Digits)",
        "task": task,
        "samples": 1797,
        "split": {"train": 1079, "validation": 359, "test": 359},
        "official_split": False,
        "drawn_validation": True,
        "on_disk": False,
        "modalities": [
            {"name": modality, "kind": "vector", "shape": [16], "missing": 0.0 if place else 0.034}
            for place, modality in enumerate(modalities)
        ],
    }
    if task == "classification":
        about["classes"] = [
            {"class": label, "samples": 175 + label, "share": (175 + label) / 1797} for label in range(10)
        ]
    else:
        about["targets"] = [{"mean": 0.01, "std": 2.56, "min": -7.7, "max": 7.0}]
    return about


def _measure(task: str, accuracy: float, hardness: float, probabilities: bool) -> dict[str, float]:
    if task == "regression":
        return {"mse": 8 * (1 - accuracy), "mae": 2 * (1 - accuracy), "pearson": accuracy}
    if not probabilities:
        return {"accuracy": accuracy}
    return {"accuracy": accuracy, "nll": 3.1 * (1 - accuracy) + 0.05, "ece": (1 - accuracy) * (0.3 + 0.5 * hardness)}


def _trust(modalities: Sequence[str], following: float, luck: float) -> dict[str, float]:
    raw = {name: np.exp(-following * place + 0.5 * np.sin(place) + luck) for place, name in enumerate(modalities)}
    total = sum(raw.values())
    return {name: float(share / total) for name, share in raw.items()}


def _bins(
    name: str, method: str, corruptions: Sequence[str], levels: Sequence[float], clean: float, loss: float
) -> list[dict[str, Any]]:
    edges, rows = np.linspace(0, 1, 16), []
    for corruption, level in product(corruptions, levels):
        for place in range(15):
            confidence = (edges[place] + edges[place + 1]) / 2
            empty = place < 2
            share = 0.0 if empty else float(np.exp(confidence * (6 - 0.4 * level)))
            rows.append(
                {
                    "set": name,
                    "method": method,
                    "corruption": corruption,
                    "level": level,
                    "bin": place,
                    "low": edges[place],
                    "high": edges[place + 1],
                    "share": share,
                    "confidence": np.nan if empty else confidence,
                    "accuracy": np.nan if empty else confidence ** (1 + loss * level / 6) * min(1.0, clean + 0.02),
                }
            )
        total = sum(row["share"] for row in rows[-15:])
        for row in rows[-15:]:
            row["share"] /= total
    return rows


def _compare(findings: Findings, seeds: int) -> tuple[pl.DataFrame, dict[tuple[str, str, float], str]]:
    sign = 1 if findings.larger_is_better else -1
    main = findings.values.filter(metric=findings.metric)
    keys = ["set", "corruption", "level", "seed"]
    paired = main.join(main.filter(method=findings.reference), on=keys, suffix="_reference")
    rows, best = [], {}
    for (name, corruption, level, method), part in paired.group_by(
        "set", "corruption", "level", "method", maintain_order=True
    ):
        if method == findings.reference:
            continue
        gap = sign * (part["value"] - part["value_reference"]).to_numpy()
        error = gap.std() / np.sqrt(len(gap)) + 1e-4
        p = float(np.clip(np.exp(-abs(gap.mean() / error)), 0.0005, 1)) if seeds >= 6 else 1.0
        rows.append(
            {
                "set": name,
                "corruption": corruption,
                "level": level,
                "method": method,
                "reference": findings.reference,
                "difference": float(gap.mean()),
                "low": float(gap.mean() - 2 * error),
                "high": float(gap.mean() + 2 * error),
                "p": p / 4,
                "p_holm": p,
                "significant": p < 0.05,
            }
        )
    found = pl.DataFrame(rows)
    if len(found):
        for (name, corruption, level), part in found.group_by("set", "corruption", "level"):
            top = part.sort("difference", descending=True).row(0, named=True)
            if top["significant"] and top["difference"] > 0:
                best[name, corruption, level] = top["method"]
    return found, best


def _rank(findings: Findings) -> pl.DataFrame:
    rank = pl.col("value").rank(descending=findings.larger_is_better)
    return (
        findings.values.filter(metric=findings.metric)
        .group_by("set", "corruption", "level", "method", maintain_order=True)
        .agg(pl.col("value").mean())
        .with_columns(rank=rank.over("set", "corruption", "level"))
        .group_by("corruption", "level", "method", maintain_order=True)
        .agg(pl.col("rank").mean(), sets=pl.col("set").n_unique())
    )
