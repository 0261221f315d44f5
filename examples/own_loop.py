"""A PyTorch loop of one's own around a method's objective."""

import torch

import consilience as cs
from consilience.core.targets import Task
from consilience.methods import Spec, Step, build
from consilience.preparation import Preparation

data = cs.load_data("digits")
task = Task.of(data.train.y)
preparation = Preparation.fit(data.train, task)  # standardisation, learned from the training samples

torch.manual_seed(0)
method = build("align", Spec(preparation.modalities, task), {"strength": 0.2})
optimizer = torch.optim.Adam(method.parameters(), lr=1e-3)

epochs = 5
for epoch in range(epochs):
    method.train()
    for rows in torch.randperm(len(data.train)).split(64):
        batch = preparation.batch(data.train, rows)
        losses = method.objective(method(batch), batch, Step(epoch, epochs))
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    print(f"epoch {epoch}:", {name: round(loss.item(), 3) for name, loss in losses.items()})

method.eval()
with torch.no_grad():
    output = method(preparation.batch(data.test)).output
accuracy = (task.decode(output.numpy()) == data.test.y).mean()
print(f"accuracy: {accuracy:.3f}")
