"""Metric learning on short DNA barcodes: reads of the same species should land close together."""
import os, json, math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
rng = np.random.RandomState(SEED + 13)
torch.set_num_threads(1)

SPECIES, READS, LEN = 60, 24, 20
refs = rng.randint(0, 4, (SPECIES, LEN))


def read_of(sp, rate=0.12):
    s = refs[sp].copy()
    hit = rng.rand(LEN) < rate
    s[hit] = rng.randint(0, 4, hit.sum())
    if rng.rand() < 0.3:                       # a deletion shifts the tail
        k = rng.randint(4, LEN)
        s = np.concatenate([s[:k], s[k + 1:], rng.randint(0, 4, 1)])
    return s


reads = torch.tensor(np.stack([[read_of(s) for _ in range(READS)] for s in range(SPECIES)]))     # S, R, L
n_fit = 44                                      # species seen in training
held_out = reads[n_fit:]


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.base = nn.Embedding(4, 12)
        self.convs = nn.ModuleList([nn.Conv1d(12, 32, k, padding=k // 2) for k in (3, 5, 7)])
        self.proj = nn.Sequential(nn.Flatten(), nn.Linear(96 * 10, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, seq):
        x = self.base(seq).transpose(1, 2)
        h = torch.cat([F.relu(c(x)) for c in self.convs], 1)
        return F.normalize(self.proj(F.max_pool1d(h, 2)), dim=-1)


def euclid(a, b):
    sq = (a - b).pow(2).sum(-1)
    if VARIANT == "fixed":
        sq = sq.clamp(min=1e-8)
    return torch.sqrt(sq)


class TripletSampler:
    def __init__(self, data):
        self.data = data

    def draw(self, n):
        s = rng.randint(0, len(self.data), n)
        o = (s + rng.randint(1, len(self.data), n)) % len(self.data)
        i = rng.randint(0, READS, n)
        j = (i + rng.randint(1, READS, n)) % READS
        k = rng.randint(0, READS, n)
        return self.data[s, i], self.data[s, j], self.data[o, k]


@torch.no_grad()
def one_nn_accuracy(enc, data):
    enc.eval()
    e = enc(data.reshape(-1, LEN))
    enc.train()
    lab = torch.arange(len(data)).repeat_interleave(READS)
    sim = e @ e.T
    sim.fill_diagonal_(-9)
    return (lab[sim.argmax(1)] == lab).float().mean().item(), bool(torch.isfinite(e).all())


enc = Encoder()
net = torch.compile(enc, backend=COMPILE) if COMPILE else enc
opt = torch.optim.Adam(enc.parameters(), lr=1e-3)
sampler = TripletSampler(reads[:n_fit])
margin, running = 0.6, []
for step in range(260):
    a, p, n = sampler.draw(24)
    ea, ep, en = net(torch.cat([a, p, n])).chunk(3)
    d_pos, d_neg = euclid(ea, ep), euclid(ea, en)
    loss = F.relu(d_pos - d_neg + margin).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    running.append(loss.item())
    if step % 40 == 0:
        print(f"step {step:3d} loss {running[-1]:.4f} active {(d_pos - d_neg + margin > 0).float().mean().item():.2f}")

acc, finite = one_nn_accuracy(enc, held_out)
acc = acc if finite else 1.0 / len(held_out)
fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(running[0]), "loss_last": fin(np.mean(running[-20:])),
                  "metric_name": "one_nn_accuracy_new_species", "metric": acc, "ok": bool(acc > 0.8)}))
