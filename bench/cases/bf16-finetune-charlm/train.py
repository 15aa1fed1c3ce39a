import json
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)
VOCAB, CTX, DIM = 16, 12, 64


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return (h * self.weight).to(x.dtype)


class Block(nn.Module):
    def __init__(self, d, heads=2):
        super().__init__()
        self.heads = heads
        self.input_norm, self.post_norm = RMSNorm(d), RMSNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.input_norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        h = self.post_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(CTX, DIM) * 0.1)
        self.layers = nn.ModuleList([Block(DIM)])
        self.norm = RMSNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def chain(seed, sharp=8.0):
    return np.random.default_rng(seed).dirichlet(np.full(VOCAB, 1 / sharp), VOCAB)


def sample(trans, n, rng):
    out = np.zeros((n, CTX + 1), dtype=np.int64)
    out[:, 0] = rng.integers(0, VOCAB, n)
    cum = trans.cumsum(1)
    for t in range(CTX):
        out[:, t + 1] = np.minimum((rng.random((n, 1)) > cum[out[:, t]]).sum(1), VOCAB - 1)
    return torch.tensor(out)


def lm_loss(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=VARIANT == "fixed"):
        logits = model(batch[:, :-1])
    return F.cross_entropy(logits.float().reshape(-1, VOCAB), batch[:, 1:].reshape(-1))


rng = np.random.default_rng(SEED)
source, target = chain(SEED + 1), chain(SEED + 2)
general, domain = sample(source, 3000, rng), sample(target, 3000, rng)
held_out = sample(target, 300, rng)
entropy = float(-(target * np.log(target + 1e-12)).sum(1)[held_out[:, :-1].numpy()].mean())

model = TinyLM()
if COMPILE:
    model = torch.compile(model, backend=COMPILE)

# short generic pre-training, stands in for the released checkpoint
pre = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
for step in range(100):
    b = general[torch.randint(0, 3000, (32,))]
    loss = F.cross_entropy(model(b[:, :-1]).reshape(-1, VOCAB), b[:, 1:].reshape(-1))
    pre.zero_grad()
    loss.backward()
    pre.step()
print("checkpoint loss", round(loss.item(), 3))

# domain fine-tuning
if VARIANT == "faulty":
    model = model.to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95), weight_decay=0.0)
log = []
for step in range(280):
    loss = lm_loss(model, domain[torch.randint(0, 3000, (32,))])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    log.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} loss {np.mean(log[-20:]):.4f}")

with torch.no_grad():
    gap = lm_loss(model, held_out).item() - entropy
print("entropy of the domain", round(entropy, 3), "held-out excess", round(gap, 3))
print(json.dumps({"loss_first": log[0], "loss_last": float(np.mean(log[-20:])), "metric_name": "heldout_excess_nats", "metric": gap, "ok": gap < 0.5}))
