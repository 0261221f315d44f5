"""Gradient checkpointing: the same gradients, fewer stored activations."""

import pytest
import torch

from consilience.core.errors import InputError
from consilience.core.samples import Modality
from consilience.encoders import Pretrained, build_encoder
from consilience.training import Trainer
from consilience.training.recomputing import recomputed
from tiny_models import tiny_bert, tiny_resnet, tiny_vit, tiny_xlnet
from training.test_parts import pretrained
from training.toys import weights


@pytest.mark.parametrize("method", ["concat", "mag", "mmbt"])
@pytest.mark.parametrize("model", [tiny_bert, tiny_xlnet])
def test_training_is_the_same_with_dropout(method, model, tmp_path):
    found = []
    for twice in (False, True):
        torch.manual_seed(0)
        built, samples, preparation = pretrained(method, model, tmp_path)
        trainer = Trainer(preparation, epochs=2, batch_size=2, lr=1e-2, device="cpu", gradient_checkpointing=twice)
        trainer.run(built, samples)
        found.append(weights(built))
        assert all("forward" not in vars(part) for part in built.modules())
    assert all(torch.allclose(found[0][name], found[1][name], atol=1e-6) for name in found[0])


def stored(encoder, x, twice):
    """Bytes that a forward pass keeps for the gradient, weights left out."""
    own = {weight.data_ptr() for weight in encoder.parameters()}
    kept = {}

    def pack(tensor):
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with recomputed(encoder, twice), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        encoder(x).pooled.sum().backward()
    return sum(kept.values())


def test_less_is_stored(tmp_path):
    image = Modality("image", "image", (3, 16, 16))
    torch.manual_seed(0)
    encoder = build_encoder(image, {"name": "pretrained", "model": tiny_vit(tmp_path), "freeze": False}).train()
    assert isinstance(encoder, Pretrained)
    x = torch.rand(8, 3, 16, 16)
    whole = stored(encoder, x, False)
    gradients = [weight.grad.clone() for weight in encoder.parameters() if weight.grad is not None]
    encoder.zero_grad()
    with recomputed(encoder):
        encoder(x).pooled.sum().backward()
    again = [weight.grad for weight in encoder.parameters() if weight.grad is not None]
    assert len(again) == len(gradients) > 4
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(gradients, again))
    assert stored(encoder, x, True) < 0.7 * whole


def test_statistics_of_batches_are_not_counted_twice(tmp_path):
    image = Modality("image", "image", (3, 16, 16))
    encoder = build_encoder(image, {"name": "pretrained", "model": tiny_resnet(tmp_path), "freeze": False})
    with recomputed(encoder) as layers:
        assert layers == 0


def test_it_cannot_be_recorded():
    with pytest.raises(InputError, match="with cuda_graphs=True gradient_checkpointing must be False, got True"):
        Trainer(cuda_graphs=True, gradient_checkpointing=True)
