"""Fine-tuning a pretrained language model: frozen at first, at a rate of its own, or with LoRA."""

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import consilience as cs

# A BERT of two layers with random weights takes the place of "bert", which would be downloaded.
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "very", "good", "bad", "film", "play", "book"]
names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), words))
made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, names["unk_token"]))
made.pre_tokenizer = pre_tokenizers.Whitespace()
made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=16, **names).save_pretrained("tiny-bert")
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained("tiny-bert")

random = np.random.default_rng(0)
liked = random.integers(0, 2, 400)
noun = random.choice(words[-3:], 400)
text = [
    f"a {'very ' * (place % 3)}{'good' if one else 'bad'} {what}" for place, (one, what) in enumerate(zip(liked, noun))
]
X = cs.Samples.of({"text": text, "stars": random.normal(liked[:, None], 2.0, (400, 1))})
train, test = np.arange(300), np.arange(300, 400)
ways = {
    "whole": ({"freeze": False}, {"lr": {"text": 1e-3, "rest": 1e-2}, "freeze": {"text": 1}, "layer_decay": 0.8}),
    "LoRA": ({"lora": 4}, {"lr": 1e-2, "weight_decay": {"head": 0.01}}),
}
accuracy = {}
for way, (own, training) in ways.items():
    bert = {"name": "bert", "model": "tiny-bert", **own}
    model = cs.FusionClassifier("concat", encoders={"text": bert}, epochs=6, batch_size=32, random_state=0, **training)
    accuracy[way] = model.fit(X.select(train), liked[train]).score(X.select(test), liked[test])
    print(f"{way}: {accuracy[way]:.2f} of the test samples are right")
