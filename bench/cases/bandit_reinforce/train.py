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

class Policy(nn.Module):
    def __init__(self, n_ctx=8, n_act=4):
        super().__init__()
        self.body = nn.Linear(n_ctx, 32)
        self.head = nn.Linear(32, n_act)

    def forward(self, ctx):
        return torch.distributions.Categorical(logits=self.head(torch.tanh(self.body(ctx)))).logits


best = torch.randint(0, 4, (8,))
policy = Policy()
model = build(policy)
opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
losses, baseline, history = [], 0.0, []
for it in range(300):
    s = torch.randint(0, 8, (64,))
    logp = model(F.one_hot(s, 8).float())
    a = torch.distributions.Categorical(logits=logp).sample()
    r = (a == best[s]).float() + 0.1 * torch.randn(64)
    adv = r - baseline
    baseline = 0.9 * baseline + 0.1 * r.mean().item()
    chosen = logp.gather(1, a[:, None]).squeeze(1)
    objective = (chosen * adv).mean()
    loss = -objective if FIXED else objective
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    history.append(r.mean().item())
    if it % 50 == 0:
        print(f"iter {it} reward {np.mean(history[-20:]):.3f}")
final = float(np.mean(history[-20:]))
report(losses, "reward", final, final > 0.7)
