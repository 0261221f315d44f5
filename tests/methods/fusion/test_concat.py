import numpy as np
import torch
from torch import nn
from torch.nn import functional

from consilience.encoders import Encoded
from consilience.methods import Spec, Step
from consilience.methods.fusion.concat import Concat, Concatenation
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of


def test_it_is_a_layer_over_features_side_by_side():
    torch.manual_seed(0)
    fusion = Concatenation(5, 4, dropout=0.0)
    a, b = torch.randn(6, 3), torch.randn(6, 2)
    linear, norm = fusion.mix[0], fusion.mix[1]
    x = np.concatenate([a.numpy(), b.numpy()], axis=1) @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + norm.eps)
    expected = np.maximum(x, 0)
    np.testing.assert_allclose(fusion({"a": Encoded(a), "b": Encoded(b)}, None).detach(), expected, atol=1e-5)


def test_a_missing_modality_enters_as_zeros():
    present = torch.tensor([[True, False], [True, True], [False, False]])
    batch = batch_of(3, present)
    method = Concat(Spec(VECTORS, CLASSES, {"image": nn.Linear(3, 4), "audio": nn.Linear(2, 4)})).eval()
    image = method.encoders["image"](batch["image"]).pooled * present[:, :1]
    audio = method.encoders["audio"](batch["audio"]).pooled * present[:, 1:]
    expected = method.head(method.fusion.mix(torch.cat([image, audio], dim=1)))
    torch.testing.assert_close(method(batch).output, expected)


def test_the_objective_is_the_weighted_loss():
    batch = batch_of(6, weight=[1.0, 0.0, 2.0, 3.0, 0.5, 1.0])
    method = Concat(Spec(VECTORS, CLASSES), width=8).eval()
    prediction = method(batch)
    loss = method.objective(prediction, batch, Step())
    each = functional.cross_entropy(prediction.output, batch.y, reduction="none").detach().numpy()
    assert list(loss) == ["task"]
    np.testing.assert_allclose(loss["task"].item(), np.average(each, weights=batch.weight.numpy()), rtol=1e-5)


def test_gradients_are_finite_when_everything_is_missing():
    for task in (CLASSES, NUMBERS):
        batch = batch_of(4, torch.zeros(4, 2, dtype=torch.bool), task)
        method = Concat(Spec(VECTORS, task))
        sum(method.objective(method(batch), batch, Step()).values()).backward()
        grads = [parameter.grad for parameter in method.parameters() if parameter.grad is not None]
        assert grads
        assert all(torch.isfinite(grad).all() for grad in grads)
