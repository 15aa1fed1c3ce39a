"""Set network for flow cytometry: from a tube of cells (marker vectors) to the fraction of every cell type."""
import argparse
import json
import math
import os

import torch
from torch import nn, einsum

p = argparse.ArgumentParser()
p.add_argument("--dim", type=int, default=128)
p.add_argument("--heads", type=int, default=2)
p.add_argument("--seeds", type=int, default=2)
p.add_argument("--cells", type=int, default=64)
p.add_argument("--markers", type=int, default=6)
p.add_argument("--types", type=int, default=4)
p.add_argument("--batch", type=int, default=40)
p.add_argument("--steps", type=int, default=220)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--seed", type=int, default=int(os.environ.get("CASE_SEED", "0")))
p.add_argument("--variant", default=os.environ.get("CASE_VARIANT", "faulty"))
args = p.parse_args([])

torch.set_num_threads(1)
torch.manual_seed(args.seed)


class MultiheadBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, dim_head = heads, dim // heads
        self.scale = dim_head ** 0.5 if args.variant == "faulty" else dim_head ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, dim * 2, bias=False)
        self.to_out = nn.Linear(dim, dim)
        for w in (self.to_q.weight, self.to_kv.weight):
            nn.init.xavier_uniform_(w)

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, context):
        q = self.split(self.to_q(x))
        k, v = map(self.split, self.to_kv(context).chunk(2, dim=-1))
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        out = einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class ResBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_q, self.ln_c, self.ln_f = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = MultiheadBlock(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x, context):
        x = x + self.attn(self.ln_q(x), self.ln_c(context))
        return x + self.ff(self.ln_f(x))


class TubeNet(nn.Module):
    def __init__(self):
        super().__init__()
        d = args.dim
        self.lift = nn.Sequential(nn.Linear(args.markers, d), nn.GELU(), nn.Linear(d, d))
        self.latents = nn.Parameter(torch.randn(1, args.seeds, d))
        self.pool = ResBlock(d, args.heads)
        self.mix = ResBlock(d, args.heads)
        self.readout = nn.Linear(d * args.seeds, args.types)

    def forward(self, cells):
        tokens = self.lift(cells)
        z = self.pool(self.latents.expand(len(cells), -1, -1), tokens)
        z = self.mix(z, z)
        return self.readout(z.flatten(1))


profiles = 1.5 * torch.randn(args.types, args.markers)


def tubes(n):
    frac = torch.distributions.Dirichlet(torch.full((args.types,), 1.2)).sample((n,))
    kind = torch.multinomial(frac, args.cells, replacement=True)
    cells = profiles[kind] + 0.5 * torch.randn(n, args.cells, args.markers)
    return cells, nn.functional.one_hot(kind, args.types).float().mean(1)


net = TubeNet()
backend = os.environ.get("CASE_COMPILE", "")
run = torch.compile(net, backend=backend) if backend else net
opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-4)
mse = nn.MSELoss()

trace = []
for step in range(args.steps):
    cells, frac = tubes(args.batch)
    loss = mse(run(cells), frac)
    opt.zero_grad()
    loss.backward()
    opt.step()
    trace.append(loss.item())
    if (step + 1) % 50 == 0:
        print(f"[{step + 1:4d}/{args.steps}] mse {sum(trace[-50:]) / 50:.5f}")

net.eval()
with torch.no_grad():
    cells, frac = tubes(1500)
    r2 = 1 - ((net(cells) - frac) ** 2).sum(0) / ((frac - frac.mean(0)) ** 2).sum(0)
print("R2 by cell type:", " ".join(f"{v:.3f}" for v in r2.tolist()))
score = r2.mean().item()
f = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": f(trace[0]), "loss_last": f(sum(trace[-20:]) / 20), "metric_name": "mean_r2", "metric": f(score),
                  "ok": score > 0.8}))
