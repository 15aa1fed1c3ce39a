import json, math, os, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
FIXED = VARIANT == "fixed"
torch.set_num_threads(1)
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)


def build(net):
    return torch.compile(net, backend=COMPILE) if COMPILE else net


def report(losses, name, value, ok):
    num = lambda v: round(float(v), 5) if math.isfinite(v) else None
    print(json.dumps({"loss_first": num(losses[0]), "loss_last": num(float(np.mean(losses[-10:]))),
                      "metric_name": name, "metric": num(value), "ok": bool(ok)}))

VOCAB, L = 60, 12


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 16)
        self.gru = nn.GRU(16, 16, batch_first=True)

    def forward(self, ids):
        return self.gru(self.emb(ids))[1][0]


class Clf(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Enc()
        self.classifier = nn.Linear(16, 2)

    def forward(self, ids):
        return self.classifier(self.encoder(ids))


weight = torch.randn(VOCAB)


def sample(n):
    ids = torch.randint(0, VOCAB, (n, L))
    score = (weight[ids] * torch.where(torch.arange(L) % 2 == 0, 1.0, -1.0)).sum(1)
    return ids, (score > 0).long()


net = Clf()
if not FIXED:
    for name, p in net.named_parameters():
        p.requires_grad = name.startswith("classifier")
model = build(net)
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
ls = []
for step in range(350):
    ids, y = sample(64)
    loss = F.cross_entropy(model(ids), y)
    opt.zero_grad(); loss.backward(); opt.step()
    ls.append(loss.item())
    if step % 50 == 0: print(step, ls[-1])
report(ls, "loss", np.mean(ls[-20:]), np.mean(ls[-20:]) < 0.45)
