"""A loop around any module: five that know nothing of it."""

import copy
import pickle

import pytest
import torch
from torch import nn

from consilience.core.errors import UnsupportedError
from consilience.methods.progressive.call_state import state_of
from consilience.methods.progressive.hooks import as_context
from consilience.methods.progressive.progressive_module import ProgressiveModule
from methods.progressive.foreign import CASES, Plain, call, inputs_of, made, stir, two_processes

every_case = pytest.mark.parametrize("case", CASES)
# A ResNet's first convolution and the linear layers can read a context beside their input; token ids cannot.
CONCAT = [case for case in CASES if case != "bert"]


@every_case
def test_one_pass_is_the_base_itself(case):
    base, loop, inputs = made(case, steps=1)
    assert torch.equal(call(loop, inputs), call(base, inputs))
    assert loop.overhead()["added"] == 0
    assert [one.shape for one in loop.parameters()] == [one.shape for one in base.parameters()]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in loop.modules())


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize(("case", "mode"), [*((case, "add") for case in CASES), *((case, "concat") for case in CONCAT)])
def test_new_links_change_nothing_and_trained_ones_do(case, mode, steps):
    base, loop, inputs = made(case, steps=steps, mode=mode)
    expected = call(base, inputs)
    if (case, mode) == ("packed", "concat"):  # sums over more columns, zeros, may be rounded otherwise
        torch.testing.assert_close(call(loop, inputs), expected)
    else:
        assert torch.equal(call(loop, inputs), expected)
    assert loop.overhead()["base"] == sum(one.numel() for one in base.parameters())
    assert loop.overhead()["added"] == sum(one.numel() for one in loop.parameters()) - loop.overhead()["base"] > 0
    answer = call(stir(loop), inputs)
    assert not torch.allclose(answer, expected)
    answer.square().sum().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in loop.link_parameters())


@pytest.mark.parametrize(("case", "mode"), [*((case, "add") for case in CASES), *((case, "concat") for case in CONCAT)])
def test_new_links_learn(case, mode):
    _, loop, inputs = made(case, mode=mode)
    before = [one.detach().clone() for one in loop.link_parameters()]
    optimizer = torch.optim.Adam(loop.train().parameters(), 1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        call(loop, inputs).square().sum().backward()
        optimizer.step()
    assert all(not torch.equal(one, new) for one, new in zip(before, loop.link_parameters(), strict=True))


def test_the_passes_are_those_of_the_equations():
    _, loop, (sound, sight) = made("plain", steps=3, project=5)
    stir(loop)
    feed = {name: receiver.link.project for name, receiver in zip(loop.paths, loop.receivers)}
    context, outputs = None, []
    for _ in range(3):
        heard = 0 if context is None else feed["sound"](loop.expand(context))
        seen = 0 if context is None else feed["sight"](loop.expand(context))[..., None, None]
        context = loop.base.join(torch.cat([loop.base.sound(sound + heard), loop.base.sight(sight + seen)], dim=1))
        outputs.append(loop.base.head(context.relu()))
    torch.testing.assert_close(torch.stack(loop.passes(sound, sight)), torch.stack(outputs))


def test_what_is_fed_back_is_not_written_over():
    class InPlace(Plain):
        def forward(self, sound, sight):
            return self.head(self.join(torch.cat([self.sound(sound), self.sight(sight)], dim=1)).relu_())

    inputs, found = inputs_of("plain"), []
    for make in (Plain, InPlace):
        torch.manual_seed(3)
        encoders = CASES["plain"][1]
        found.append(stir(ProgressiveModule(make().eval(), encoders, "join", steps=3, example=inputs))(*inputs))
    torch.testing.assert_close(*found)


def test_concatenation_is_a_wider_first_layer():
    _, loop, (sound, sight) = made("plain", mode="concat", link_rank=2)
    stir(loop)
    base, links = loop.base, [receiver.link for receiver in loop.receivers]
    context = base.join(torch.cat([base.sound(sound), base.sight(sight)], dim=1))

    def widened(layer, link, x):
        fed = link.project(context)
        fed = fed.view(*fed.shape, *[1] * (x.ndim - 2)).expand(-1, -1, *x.shape[2:])
        weight = torch.cat([layer.weight, link.extra.weight], dim=1)
        operation = nn.functional.linear if x.ndim == 2 else nn.functional.conv2d
        return operation(torch.cat([x, fed], dim=1), weight, layer.bias)

    heard = base.sound[1:](widened(base.sound[0], links[0], sound))
    seen = base.sight[1:](widened(base.sight[0], links[1], sight))
    expected = base.head(base.join(torch.cat([heard, seen], dim=1)).relu())
    torch.testing.assert_close(loop(sound, sight), expected)


@pytest.mark.parametrize("mode", ["add", "concat"])
def test_packed_sequences_hear_the_same_at_every_step(mode):
    _, loop, (steps, lengths, beats) = made("packed", mode=mode)
    stir(loop)
    together = loop(steps, lengths, beats)
    for row in range(len(steps)):  # one sample alone, without padding
        alone = loop(steps[row : row + 1, : lengths[row]], lengths[row : row + 1], beats[:, row : row + 1])
        torch.testing.assert_close(alone[0], together[row])
    steps[lengths[:, None] <= torch.arange(6)] = float("nan")
    assert torch.equal(loop(steps, lengths, beats), together)


def test_a_bert_is_heard_over_its_words_and_fed_into_a_layer():
    torch.manual_seed(3)
    base = CASES["bert"][0]().eval()
    ids, numbers = inputs_of("bert")
    mask = torch.arange(7) < torch.tensor([7, 5, 3, 6, 2])[:, None]
    inputs = {"ids": ids, "numbers": numbers, "attention_mask": mask.long()}
    expected = base(**inputs)
    encoders = {"text": base.bert.encoder.layer[0], "numbers": base.numbers}
    loop = ProgressiveModule(base, encoders, "bert", example=inputs)
    assert torch.equal(loop(**inputs), expected)
    stir(loop)
    answer = loop(**inputs)
    inputs["ids"] = torch.where(mask, ids, 3)  # what is masked is neither attended to nor fed back
    torch.testing.assert_close(loop(**inputs), answer)


@pytest.mark.parametrize("case", ["plain", "packed"])
def test_copies_and_files_are_independent_and_equal(case):
    _, loop, inputs = made(case, mode="concat")
    stir(loop)
    expected = call(loop, inputs)
    again = made(case, mode="concat")[1]
    again.load_state_dict(loop.state_dict())
    for other in (copy.deepcopy(loop), pickle.loads(pickle.dumps(loop)), again):
        assert torch.equal(call(other, inputs), expected)
        with torch.no_grad():
            other.receivers[0].link.project[0].weight.zero_()
        assert not torch.equal(call(other, inputs), expected)
        assert torch.equal(call(loop, inputs), expected)


def test_it_compiles_and_exports():
    for mode in ("add", "concat"):
        _, loop, inputs = made("plain", mode=mode)
        stir(loop)
        expected = loop(*inputs)
        compiled = torch.compile(loop, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*inputs), expected)
        exported = torch.export.export(loop, inputs).module()
        torch.testing.assert_close(exported(*inputs), expected)
        torch._dynamo.reset()


@every_case
def test_half_precision(case):
    _, loop, inputs = made(case)
    stir(loop)
    expected = call(loop, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = call(loop, inputs)
    torch.testing.assert_close(answer.float(), expected, rtol=0.1, atol=0.1)


def test_nothing_is_left_behind_when_a_pass_fails():
    _, loop, inputs = made("plain")
    stir(loop)
    expected, alone = loop(*inputs), loop.base(*inputs)
    failing = loop.base.head.register_forward_pre_hook(fail_on_second())
    with pytest.raises(RuntimeError, match="second pass"):
        loop(*inputs)
    failing.remove()
    assert all(state_of(module) is None for module in (*loop.receivers, loop.source))
    assert torch.equal(loop.base(*inputs), alone)
    assert torch.equal(loop(*inputs), expected)


def test_feedback_that_never_reaches_the_fusion_is_refused():
    base, _, inputs = made("plain")
    for encoders in ({"sound": "head"}, {"sound": "sound", "sight": "head"}):
        with pytest.raises(UnsupportedError, match=r"return to the fusion from 'head', called after .*no loop"):
            ProgressiveModule(base, encoders, "join", example=inputs)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in base.modules())


def test_a_receiver_may_hold_the_fusion_or_lie_in_it():
    around = nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    x = torch.randn(3, 4)
    for receiver, fusion in (("1", "1.0"), ("1.0", "1")):
        loop = ProgressiveModule(copy.deepcopy(around), {"x": receiver}, fusion, example=x)
        assert torch.equal(loop(x), around(x))
        stir(loop)
        assert not torch.allclose(loop(x), around(x))


def fail_on_second():
    calls = []

    def fail(module, received):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("in the second pass")

    return fail


def test_hooks_do_nothing_outside_and_can_be_taken_off():
    for case, mode in (("plain", "add"), ("packed", "concat")):
        base, loop, inputs = made(case, mode=mode)
        stir(loop)
        loop.base.load_state_dict(made(case, mode=mode)[1].base.state_dict())
        expected = call(base, inputs)
        torch.testing.assert_close(call(loop.base, inputs), expected)
        plain = loop.remove()
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in plain.modules())
        assert not any("forward" in vars(module) for module in plain.modules())
        assert torch.equal(call(plain, inputs), expected)
        assert [one.shape for one in plain.parameters()] == [one.shape for one in base.parameters()]


def test_without_an_example_the_first_call_builds():
    base, inputs = Plain().eval(), inputs_of("plain")
    loop = ProgressiveModule(base, {"sound": "sound"}, "join")
    assert loop.overhead()["added"] == 0
    assert torch.equal(loop(*inputs), base(*inputs))
    assert loop.overhead()["added"] == 6 * 4


def test_detached_passes_send_no_gradient_back():
    gradients = []
    for detach in (False, True):
        _, loop, inputs = made("plain", detach=detach)
        stir(loop)
        heard = []
        loop.receivers[0].link.register_forward_pre_hook(lambda link, given, heard=heard: heard.append(given[1]))
        loop(*inputs).sum().backward()
        gradients.append(heard[0].requires_grad)
    assert gradients == [True, False]


def test_what_is_fed_back_is_one_vector_for_each_sample():
    torch.manual_seed(0)
    sequence, image = torch.randn(3, 5, 4), torch.randn(3, 4, 2, 2)
    for output, expected in [
        (sequence, sequence.mean(1)),
        ((sequence, None), sequence.mean(1)),
        (image, image.mean((2, 3))),
        ({"scores": torch.arange(3), "hidden": sequence}, sequence.mean(1)),
    ]:
        torch.testing.assert_close(as_context(nn.Identity(), {}, output, "join"), expected)
    torch.testing.assert_close(as_context(nn.Conv1d(4, 5, 1), {}, sequence, "join"), sequence.mean(2))
    gru, lstm = nn.GRU(4, 3, num_layers=2, bidirectional=True), nn.LSTM(4, 3, batch_first=True)
    states, last = gru(sequence.transpose(0, 1))
    torch.testing.assert_close(as_context(gru, {}, (states, last), "join"), torch.cat([last[2], last[3]], dim=1))
    states, last = lstm(sequence)
    torch.testing.assert_close(as_context(lstm, {}, (states, last), "join"), states[:, -1])
    attention = nn.MultiheadAttention(4, 1)
    torch.testing.assert_close(as_context(attention, {}, (sequence, None), "join"), sequence.mean(0))


@pytest.mark.slow
def test_two_processes_give_the_gradients_of_one(tmp_path):
    torch.multiprocessing.spawn(two_processes, (str(tmp_path),), nprocs=2)
    _, loop, inputs = made("keywords")
    stir(loop).train()
    loop(**{name: value[:4] for name, value in inputs.items()}).square().mean().backward()
    found = torch.load(tmp_path / "gradients.pt")
    for name, parameter in loop.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
