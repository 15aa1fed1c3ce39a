"""Small transformer that decides which of two tokens is more frequent; gradient accumulation for memory."""
import argparse
import json
import os

import torch
from torch import nn

variant = os.environ.get("CASE_VARIANT", "faulty")
backend = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
parser.add_argument("--epochs", type=int, default=28)
parser.add_argument("--batch-size", type=int, default=48)
parser.add_argument("--accumulation-steps", type=int, default=16)
parser.add_argument("--lr", type=float, default=4e-3)
args = parser.parse_args()
torch.manual_seed(args.seed)


class Classifier(nn.Module):
    def __init__(self, vocab=9, d=36):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        layer = nn.TransformerEncoderLayer(d, 3, 72, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, 2)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(1))


def make(n, length=21):
    x = torch.randint(0, 9, (n, length))
    diff = (x == 1).sum(1) - (x == 2).sum(1)
    keep = diff != 0
    return x[keep], (diff[keep] > 0).long()


class Trainer:
    def __init__(self):
        self.model = Classifier()
        self.net = torch.compile(self.model, backend=backend) if backend else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.01)
        self.criterion = nn.CrossEntropyLoss()
        x, y = make(800)
        self.train_set = torch.utils.data.TensorDataset(x, y)
        self.loader = torch.utils.data.DataLoader(self.train_set, batch_size=args.batch_size, shuffle=True)
        self.eval_x, self.eval_y = make(500)
        self.losses = []

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            acc = (self.net(self.eval_x).argmax(1) == self.eval_y).float().mean().item()
        self.model.train()
        return acc

    def train_epoch(self):
        self.optimizer.zero_grad()
        for i, (x, y) in enumerate(self.loader):
            loss = self.criterion(self.net(x), y)
            (loss / args.accumulation_steps).backward()
            self.losses.append(loss.item())
            ready = (i + 1) % args.accumulation_steps == 0
            if variant == "fixed":
                ready = ready or i + 1 == len(self.loader)
            if ready:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def fit(self):
        for epoch in range(args.epochs):
            self.train_epoch()
            if epoch % 9 == 0:
                print(f"epoch {epoch} loss {self.losses[-1]:.4f} eval_acc {self.evaluate():.3f}")
        return self.evaluate()


t = Trainer()
acc = t.fit()
print(json.dumps({"loss_first": t.losses[0], "loss_last": sum(t.losses[-14:]) / 14,
                  "metric_name": "eval_accuracy", "metric": acc, "ok": acc > 0.9}))
