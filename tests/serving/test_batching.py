"""Requests that arrive together are predicted together, and an error is that of its own request alone."""

import math
import threading
from concurrent.futures import wait

import numpy as np
import pytest

from consilience.core.samples import Samples
from consilience.serving.batching import Batcher, Job
from consilience.serving.joined_samples import join_samples
from consilience.serving.refusals import Refusal
from consilience.serving.served_model import ServedModel
from consilience.serving.serving_settings import ServingSettings
from serving.conftest import PATIENCE, ROW, machines


@pytest.fixture(scope="module")
def model(models):
    return ServedModel("machines", models / "machines", 0.9)


def job(model, rows, deadline=math.inf):
    completed = model.layout.read(rows, 100)
    return Job(lambda: model.read_rows(completed), len(rows), deadline)


class Held(Batcher):
    """A batcher whose thread predicts when it is told to, and notes the sizes of batches."""

    def __init__(self, model, **limits):
        self.taken, self.go, self.sizes = threading.Event(), threading.Event(), []
        settings = ServingSettings(**limits)
        super().__init__(model, settings, lambda samples, requests, seconds: self.sizes.append(requests))

    def _predict(self, jobs):
        self.taken.set()
        assert self.go.wait(PATIENCE)
        super()._predict(jobs)

    def send(self, *jobs):
        for each in jobs:
            assert self.arrive()
            self.submit(each)
        return [each.answer for each in jobs]


def test_what_waits_is_predicted_together_with_the_answers_of_each_alone(model):
    table = machines(12, seed=9).drop("hours", "state")
    rows = list(table.iter_rows(named=True))
    rows[3] = {"vibration_0": 1.0}
    rows[5] = {"note": "all fine"}
    alone = [model.predict(model.read_rows(model.layout.read([row], 100))[0]) for row in rows]
    held = Held(model)
    answers = held.send(*(job(model, [row]) for row in rows))
    held.go.set()
    found = [answer.result(PATIENCE) for answer in answers]
    held.close(PATIENCE)
    assert sum(held.sizes) == 12
    assert max(held.sizes) >= 11, "the first may be predicted alone"
    for one, together in zip(alone, found):
        assert one.decided.tolist() == together.decided.tolist()
        np.testing.assert_allclose(one.probabilities, together.probabilities, atol=1e-6)
        np.testing.assert_allclose(one.trust, together.trust, atol=1e-6)
        assert one.sets.tolist() == together.sets.tolist()
        assert one.observed.tolist() == together.observed.tolist()


def test_an_error_is_that_of_its_own_request(model):
    held = Held(model)
    good, unread, huge = job(model, [ROW]), job(model, [{"vibration_0": "x"}]), job(model, [{"vibration_0": 1e300}])
    answers = held.send(good, unread, huge, job(model, [ROW]))
    held.go.set()
    wait(answers, PATIENCE)
    held.close(PATIENCE)
    assert [type(answer.exception()).__name__ for answer in answers] == [
        "NoneType",
        "InputError",
        "InputError",
        "NoneType",
    ]


def test_a_batch_has_no_more_rows_than_allowed(model):
    held = Held(model, batch_rows=4)
    answers = held.send(*(job(model, [ROW] * 3) for _ in range(4)), job(model, [ROW] * 9))
    held.go.set()
    wait(answers, PATIENCE)
    held.close(PATIENCE)
    assert held.sizes == [1] * 5, "two requests of three rows are more than four rows, one of nine goes alone"


def test_a_full_queue_refuses_and_lets_the_others_wait(model):
    held = Held(model, max_waiting=2)
    first = held.send(job(model, [ROW]))
    assert held.taken.wait(PATIENCE)
    assert not held.waiting
    answers = first + held.send(job(model, [ROW]), job(model, [ROW]))
    with pytest.raises(Refusal, match="2 requests to model 'machines' wait already") as refused:
        held.send(job(model, [ROW]))
    assert refused.value.status == 503
    assert refused.value.headers["Retry-After"] == "1"
    held.go.set()
    assert all(len(answer.result(PATIENCE)) == 1 for answer in answers)
    held.close(PATIENCE)


def test_it_waits_for_a_request_that_is_being_received_but_not_for_long(model, monkeypatch):
    batcher = Batcher(model, ServingSettings(batch_wait=50.0))
    waits, wait = [], batcher._changed.wait
    monkeypatch.setattr(batcher._changed, "wait", lambda seconds=None: (waits.append(seconds), wait(seconds))[1])
    assert batcher.arrive()  # another client, which is slow
    assert batcher.arrive()
    late = job(model, [ROW])
    batcher.submit(late)
    late.answer.result(PATIENCE)
    assert any(seconds is not None and 0 < seconds <= 0.05 for seconds in waits)
    batcher.leave()
    waits.clear()
    batcher.arrive()
    soon = job(model, [ROW])
    batcher.submit(soon)
    soon.answer.result(PATIENCE)
    assert set(waits) <= {None}, "nobody else is being received"
    batcher.close(PATIENCE)


def test_a_request_that_cannot_be_predicted_leaves_the_others_alone(model, monkeypatch):
    predict = model.predict

    def refusing(samples):
        if len(samples) != 1:
            raise ValueError("these rows together are a mistake of ours")
        return predict(samples)

    monkeypatch.setattr(model, "predict", refusing)
    good, bad = model.read_rows([ROW])[0], model.read_rows([ROW, ROW])[0]
    first, second, third = model.predict_together([good, bad, good])
    assert isinstance(second, ValueError)
    assert first.decided.tolist() == third.decided.tolist() == predict(good).decided.tolist()


def test_a_request_that_nobody_waits_for_any_more_is_not_predicted(model):
    batcher = Batcher(model, ServingSettings())
    batcher.arrive()
    late = job(model, [ROW], deadline=-math.inf)
    batcher.submit(late)
    with pytest.raises(Refusal, match="waited too long") as refused:
        late.answer.result(PATIENCE)
    assert refused.value.status == 504
    batcher.close(PATIENCE)


def test_a_closed_model_answers_what_has_begun_and_takes_nothing_new(model):
    batcher = Batcher(model, ServingSettings())
    assert batcher.arrive()
    batcher.close()
    assert not batcher.arrive()
    last = job(model, [ROW])
    batcher.submit(last)
    assert len(last.answer.result(PATIENCE)) == 1
    batcher._thread.join(PATIENCE)
    assert not batcher._thread.is_alive()


def test_joined_samples_are_those_of_their_concatenation():
    rng = np.random.default_rng(0)
    long, short = rng.normal(size=(2, 4, 3)), rng.normal(size=(1, 2, 3))
    parts = [
        Samples.of({"a": long, "b": [[1.0], [np.nan]], "t": ["one", None]}),
        Samples.of({"t": ["two"], "a": short}),
        Samples.of({"b": [[5.0]]}),
    ]
    joined = join_samples(parts)
    whole = Samples.of(
        {
            "a": [long[0], long[1], short[0], None],
            "b": [[1.0], None, None, [5.0]],
            "t": ["one", None, "two", None],
        }
    )
    assert joined.present.tolist() == whole.present.tolist()
    assert joined.lengths["a"].tolist() == whole.lengths["a"].tolist()
    for name in whole:
        assert joined.read(name).tolist() == whole.read(name).tolist()
