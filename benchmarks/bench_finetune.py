"""What fine-tuning costs: seconds of a training step and memory, for models of true size with random weights.

Text with BERT-base beside a sequence, text and images with BERT-base and ViT-B/16, both by `concat`, and words with
sequences by `mag` on XLNet-base. Each is trained as a whole, frozen, with LoRA, and with gradient checkpointing, in 32
and in 16 bits.

    python benchmarks/bench_finetune.py --out results.json          on a GPU
    python benchmarks/bench_finetune.py --tiny                      small models, to see that it runs
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from consilience import methods
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.encoders import own_transforms
from consilience.preparation import Preparation
from consilience.training import Callback, Trainer

WORDS = [f"w{number}" for number in range(2000)]
# Way of training → settings of every pretrained encoder, settings of training.
WAYS = {
    "whole": ({"freeze": False}, {}),
    "frozen": ({"freeze": True}, {}),
    "last two layers": ({"freeze": 2}, {}),
    "lora 8": ({"lora": 8}, {}),
    "checkpointing": ({"freeze": False}, {"gradient_checkpointing": True}),
    "lora 8, checkpointing": ({"lora": 8}, {"gradient_checkpointing": True}),
    "by layer": ({"freeze": False}, {"layer_decay": 0.9, "lr": {"rest": 1e-3, "text": 2e-5}}),
}


def save_tokeniser(folder: Path, longest: int) -> int:
    """A tokeniser over made-up words, each of two pieces; returns how many pieces it knows."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "w", *sorted({f"##{word[1:]}" for word in WORDS})]
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    places = {piece: place for place, piece in enumerate(pieces)}
    made = Tokenizer(models.WordPiece(places, unk_token=names["unk_token"]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=longest, **names).save_pretrained(folder)
    return len(pieces)


def save_models(folder: Path, tiny: bool) -> dict[str, str]:
    """Models with random weights, each with its tokeniser or processor."""
    from transformers import BertConfig, BertModel, ViTConfig, ViTModel, XLNetConfig, XLNetModel

    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    bert = BertModel(BertConfig(**(small if tiny else {})))
    xlnet = XLNetModel(
        XLNetConfig(**({"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32} if tiny else _XLNET_BASE))
    )
    vit = ViTModel(ViTConfig(**({**small, "image_size": 32, "patch_size": 8} if tiny else {})))
    paths = {name: folder / name for name in ("bert", "xlnet", "vit")}
    for name, model in (("bert", bert), ("xlnet", xlnet), ("vit", vit)):
        model.save_pretrained(paths[name])
        if name != "vit":
            save_tokeniser(paths[name], 512)
    side = vit.config.image_size
    processor = {"size": {"height": side, "width": side}, "do_normalize": True}
    processor |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}
    (paths["vit"] / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    return {name: str(path) for name, path in paths.items()}


_XLNET_BASE = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}


def make_samples(kinds: tuple[str, ...], n: int, words: int, side: int) -> Samples:
    """Texts of so many words (two pieces each), images, sequences of one step for each word."""
    random = np.random.default_rng(0)
    made = {
        "text": lambda: np.array([" ".join(random.choice(WORDS, words)) for _ in range(n)]),
        "image": lambda: random.random((n, 3, side, side), dtype=np.float32),
        "sound": lambda: random.normal(size=(n, words, 74)).astype(np.float32),
        "face": lambda: random.normal(size=(n, words, 47)).astype(np.float32),
    }
    return Samples.of({name: made[name]() for name in kinds}, np.arange(n) % 10)


class Clock(Callback):
    """Seconds of every step, waiting for the device."""

    def __init__(self):
        self.ends: list[float] = []

    def on_epoch_start(self, run):
        self._note(run)

    def on_step_end(self, run):
        self._note(run)

    def _note(self, run):
        if run.fabric.device.type == "cuda":
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    def seconds(self, skipped: int = 3) -> float:
        return statistics.median(np.diff(self.ends)[skipped:])


def measure(method: str, samples: Samples, encoders: dict, batch: int, **training) -> dict[str, float]:
    """Step time, peak memory and the number of trained weights of one training."""
    task = Task.of_labels(samples.y)
    preparation = Preparation.fit(samples, task, own_transforms(samples.modalities, encoders))
    torch.manual_seed(0)
    module = methods.build(method, methods.Spec(preparation.modalities, task, encoders))
    clock, cuda = Clock(), torch.cuda.is_available()
    trainer = Trainer(preparation, epochs=1, batch_size=batch, optimizer="adamw", callbacks=[clock], **training)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if cuda else 0
    trainer.run(module, samples)
    peak = torch.cuda.max_memory_allocated() - before if cuda else 0
    return {
        "step_ms": 1e3 * clock.seconds(),
        "peak_gib": peak / 2**30,
        "trained_millions": sum(weight.numel() for weight in module.parameters() if weight.requires_grad) / 1e6,
        "millions": sum(weight.numel() for weight in module.parameters()) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small models")
    parser.add_argument("--batch", type=int, default=32, help="samples in a batch")
    parser.add_argument("--words", type=int, default=60, help="words of a text, each of two pieces")
    parser.add_argument("--steps", type=int, default=15, help="steps measured")
    parser.add_argument("--seconds", type=float, default=480, help="no further measurement after this time")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    chosen = parser.parse_args()
    began, found, left_out = time.monotonic(), [], []
    if chosen.tiny:
        chosen.batch, chosen.words, chosen.steps = 4, 8, 6
    with tempfile.TemporaryDirectory() as folder:
        models = save_models(Path(folder), chosen.tiny)
        side = 32 if chosen.tiny else 224
        tasks = {
            "BERT": ("concat", ("text", "sound"), {"text": "bert"}),
            "BERT and ViT": ("concat", ("text", "image"), {"text": "bert", "image": "vit"}),
            "MAG on XLNet": ("mag", ("text", "sound", "face"), {"text": "xlnet"}),
        }
        for title, (method, kinds, used) in tasks.items():
            samples = make_samples(kinds, chosen.batch * chosen.steps, chosen.words, side)
            for precision in ("32", "bf16"):
                for way, (own, training) in WAYS.items():
                    if "lora" in own and find_spec("peft") is None:
                        left_out.append(f"{title}, {way}: PEFT is not installed")
                        continue
                    if time.monotonic() - began > chosen.seconds:
                        left_out.append(f"{title}, {way}, {precision} bits: out of time")
                        continue
                    encoders = {
                        name: {"name": "pretrained", "model": models[model], **own} for name, model in used.items()
                    }
                    lr = {"lr": 2e-5, **training}
                    row = measure(method, samples, encoders, chosen.batch, precision=precision, **lr)
                    found.append({"task": title, "precision": precision, "way": way, **row})
                    print(
                        f"{title:13s} {precision:5s} {way:22s} {row['step_ms']:8.1f} ms {row['peak_gib']:6.2f} GiB, "
                        f"{row['trained_millions']:7.2f} of {row['millions']:.1f} million weights trained",
                        flush=True,
                    )
                    gc.collect()
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()
    for line in dict.fromkeys(left_out):
        print(f"left out: {line}")
    if chosen.out is not None:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
        about = {"device": device, "torch": torch.__version__, "batch": chosen.batch, "pieces": 2 * chosen.words + 2}
        chosen.out.write_text(json.dumps({**about, "rows": found, "left_out": left_out}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
