"""Topic classification of letters that begin with a standard header; small convolutional text model."""
import json
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
VOCAB, TOPICS, MAX_TOKENS = 120, 6, 22
header = torch.randint(0, VOCAB, (26,))
topic_words = torch.randint(0, VOCAB, (TOPICS, 12))


def letter():
    topic = int(torch.randint(TOPICS, ()))
    n = int(torch.randint(24, 40, ()))
    body = torch.randint(0, VOCAB, (n,))
    own = torch.rand(n) < 0.4
    body[own] = topic_words[topic][torch.randint(12, (int(own.sum()),))]
    return torch.cat([header, body]), topic


def collate(batch):
    if VARIANT == "fixed":
        tokens = torch.stack([t[-MAX_TOKENS:] for t, _ in batch])
    else:
        tokens = torch.stack([t[:MAX_TOKENS] for t, _ in batch])
    return tokens, torch.tensor([c for _, c in batch])


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.convs = nn.ModuleList([nn.Conv1d(24, 20, k) for k in (1, 3)])
        self.fc = nn.Linear(40, TOPICS)

    def forward(self, tokens):
        e = self.emb(tokens).transpose(1, 2)
        return self.fc(torch.cat([torch.relu(c(e)).mean(-1) for c in self.convs], 1))


train = [letter() for _ in range(1200)]
test = [letter() for _ in range(300)]
loader = DataLoader(train, batch_size=40, shuffle=True, collate_fn=collate)
model = TextCNN()
net = torch.compile(model, backend=BACKEND) if BACKEND else model
opt = torch.optim.RMSprop(model.parameters(), lr=2e-3)
losses = []
for epoch in range(8):
    for tokens, topic in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(tokens), topic)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses[-30:]) / 30:.4f}")
tokens, topic = collate(test)
with torch.no_grad():
    acc = (net(tokens).argmax(1) == topic).float().mean().item()
print(json.dumps({"loss_first": losses[0], "loss_last": sum(losses[-30:]) / 30, "metric_name": "accuracy", "metric": acc, "ok": acc > 0.8}))
