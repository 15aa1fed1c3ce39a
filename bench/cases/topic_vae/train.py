"""Neural topic model: amortised inference network over word counts, topics as a softmax decoder."""
import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset


def build_parser():
    ap = argparse.ArgumentParser()
    ap.add_argument("--topics", type=int, default=10)
    ap.add_argument("--vocab", type=int, default=320)
    ap.add_argument("--docs", type=int, default=2400)
    ap.add_argument("--hidden", type=int, default=128)
    ap.add_argument("--lr", type=float, default=1e-3 if os.environ.get("CASE_VARIANT") == "fixed" else 0.1)
    ap.add_argument("--epochs", type=int, default=18)
    ap.add_argument("--kl-epochs", type=int, default=8)
    ap.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
    return ap


def corpus(a):
    r = np.random.RandomState(a.seed)
    beta = r.dirichlet(np.full(a.vocab, 0.05), a.topics)
    theta = r.dirichlet(np.full(a.topics, 0.12), a.docs)
    counts = np.stack([r.multinomial(r.randint(60, 140), t @ beta) for t in theta]).astype(np.float32)
    return torch.from_numpy(counts)


class InferenceNet(nn.Module):
    def __init__(self, vocab, hidden, topics):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(vocab, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                  nn.Linear(hidden, hidden), nn.ReLU())
        self.mu = nn.Linear(hidden, topics)
        self.log_sigma = nn.Linear(hidden, topics)

    def forward(self, counts):
        h = self.body(counts.log1p())
        return Normal(self.mu(h), self.log_sigma(h).clamp(-6, 2).exp())


class TopicModel(nn.Module):
    def __init__(self, vocab, hidden, topics):
        super().__init__()
        self.infer = InferenceNet(vocab, hidden, topics)
        self.topics = nn.Linear(topics, vocab)

    def forward(self, counts):
        q = self.infer(counts)
        z = q.rsample() if self.training else q.mean
        logp = F.log_softmax(self.topics(F.softmax(z, -1) * 4), -1)
        rec = -(counts * logp).sum(-1)
        kl = kl_divergence(q, Normal(torch.zeros_like(q.mean), torch.ones_like(q.mean))).sum(-1)
        return rec, kl


def main():
    a = build_parser().parse_args([])
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    docs = corpus(a)
    train, held = docs[:-400], docs[-400:]
    loader = DataLoader(TensorDataset(train), batch_size=50, shuffle=True)
    net = TopicModel(a.vocab, a.hidden, a.topics)
    backend = os.environ.get("CASE_COMPILE", "")
    model = torch.compile(net, backend=backend) if backend else net
    optimizer = torch.optim.Adam(net.parameters(), lr=a.lr)

    freq = train.sum(0) + 1
    unigram = math.exp(-(held @ (freq / freq.sum()).log()).sum().item() / held.sum().item())
    elbo = []
    for epoch in range(a.epochs):
        model.train()
        weight = 0.5 * min(1.0, epoch / a.kl_epochs)
        for (bow,) in loader:
            rec, kl = model(bow)
            loss = ((rec + weight * kl) / bow.sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            elbo.append(loss.item())
        model.eval()
        with torch.no_grad():
            rec, kl = model(held)
        ppl = math.exp(min(rec.sum().item() / held.sum().item(), 50))
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1} loss/word {np.mean(elbo[-40:]):.4f} kl {kl.mean():.3f} held-out ppl {ppl:.1f} "
                  f"(unigram {unigram:.1f})")
    ratio = ppl / unigram
    ok = lambda v: v if math.isfinite(v) else None
    print(json.dumps({"loss_first": ok(elbo[0]), "loss_last": ok(float(np.mean(elbo[-40:]))),
                      "metric_name": "ppl_over_unigram", "metric": ok(ratio), "ok": bool(ratio < 0.75)}))


if __name__ == "__main__":
    main()
