"""Steps with a pretrained-size encoder on one process, on two, and sharded: time, memory, and whether they agree.

Each way trains `concat` of a BERT with random weights (of the size of BERT-base) and a vector for two epochs in a
process of its own; the second one is timed. There is no dropout, so that all ways must end with the same loss.

python benchmarks/bench_distributed.py [--ways cpu cpu-ddp2 cuda cuda-fsdp] [--tiny]

- cpu, cuda: one process;
- cpu-ddp2: two processes on the processor, which average gradients (DDP over gloo);
- cuda-fsdp: Fabric's `fsdp` on as many GPUs as there are; with one GPU it runs all of its code and saves no memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

WORDS = [f"w{number}" for number in range(200)]
WAYS: dict[str, dict[str, Any]] = {
    "cpu": {"device": "cpu"},
    "cpu-ddp2": {"device": "cpu", "devices": 2},
    "cuda": {"device": "cuda"},
    "cuda-fsdp": {"device": "cuda", "strategy": "fsdp"},
}


def write_model(folder: Path, tiny: bool) -> str:
    """A BERT with random weights and a tokeniser of a few words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary = {word: place for place, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - a word
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=made, **marks).save_pretrained(folder)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = BertConfig(**(size if tiny else {}), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    BertModel(config).save_pretrained(folder)
    return str(folder)


def make_samples(rows: int, length: int) -> Any:
    """Texts of so many words and a vector, both of which say something of two classes."""
    from consilience.core.samples import Samples

    drawn = np.random.default_rng(0)
    y = drawn.integers(0, 2, rows)
    words = drawn.integers(0, 100, (rows, length)) + 100 * (drawn.random((rows, length)) < 0.3 + 0.2 * y[:, None])
    texts = [" ".join(WORDS[word] for word in row) for row in words]
    vector = drawn.normal(size=(rows, 32)) + 0.2 * y[:, None]
    return Samples.of({"text": texts, "vector": vector}, y)


def train(way: str, folder: str, rows: int, batch: int, precision: str, tiny: bool) -> dict[str, Any]:
    """Train in this process, or in those it starts, and say how long a step took and how much memory."""
    import torch

    from consilience.training import Model, Trainer

    samples = make_samples(rows, 16 if tiny else 126)
    on_gpu = way.startswith("cuda")
    settings = WAYS[way] | ({"devices": torch.cuda.device_count()} if way == "cuda-fsdp" else {})
    trainer = Trainer(epochs=2, batch_size=batch, lr=1e-4, precision=precision, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers and Fabric
        model = Model.fit(
            "concat",
            samples,
            settings={"dropout": 0.0},
            encoders={
                "text": {"name": "bert", "model": folder, "freeze": False},
                "vector": {"name": "mlp", "dropout": 0.0},
            },
            trainer=trainer,
        )
    first, second = model.logs[0].rows
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "way": way,
        "parameters": sum(parameter.numel() for parameter in model.method.parameters()),
        "precision": precision,
        "batch": batch,
        "step_seconds": second["seconds"] / (second["steps"] - first["steps"]),
        "losses": [row["task"] for row in (first, second)],
        "process_gib": max(own, started) / 2**20,
        "gpu_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "device": torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} threads",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=["cpu", "cpu-ddp2"])
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--precision", default="32")
    parser.add_argument("--tiny", action="store_true", help="two layers of 32 features, 16 words")
    parser.add_argument("--out", type=Path, help="a JSON file of the results")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        found = train(chosen.child, chosen.model, chosen.rows, chosen.batch, chosen.precision, chosen.tiny)
        print(json.dumps(found))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), chosen.tiny)
        for way in chosen.ways:
            passed = ["--rows", str(chosen.rows), "--batch", str(chosen.batch), "--precision", chosen.precision]
            command = [sys.executable, __file__, "--child", way, "--model", model, *passed]
            done = subprocess.run(command + ["--tiny"] * chosen.tiny, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{way}: failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
                results.append({"way": way, "error": done.stderr[-2000:]})
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            results.append(found)
            gpu = "" if found["gpu_gib"] is None else f", {found['gpu_gib']:.2f} GiB on the GPU"
            print(
                f"{way} ({found['device']}, precision {found['precision']}): {found['parameters'] / 1e6:.1f} M "
                f"weights, {1000 * found['step_seconds']:.0f} ms a step of {found['batch']}, at most "
                f"{found['process_gib']:.2f} GiB in a process{gpu}; "
                f"losses {', '.join(f'{loss:.5f}' for loss in found['losses'])}",
                flush=True,
            )
    ends = [found["losses"][-1] for found in results if "losses" in found]
    if len(ends) > 1:
        print(f"largest difference of the last losses: {max(ends) - min(ends):.2g}")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
