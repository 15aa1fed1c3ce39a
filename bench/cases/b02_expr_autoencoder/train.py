# Autoencoder for bulk expression profiles: squeeze the genes to a small code, reconstruct, look at R2.
import os, json, math
import numpy as np
import torch
from torch import nn

variant = os.environ.get("CASE_VARIANT", "faulty")
seed = int(os.environ.get("CASE_SEED", "0"))
backend = os.environ.get("CASE_COMPILE", "")
np.random.seed(seed)
torch.manual_seed(seed)
torch.set_num_threads(1)

N_SAMPLES, N_GENES, N_PROGRAMS, CODE = 1600, 200, 8, 24


def simulate_cohort(rng):
    tissue = rng.randint(0, 6, N_SAMPLES)
    centers = rng.randn(6, N_PROGRAMS) * 1.2
    activity = centers[tissue] + 0.7 * rng.randn(N_SAMPLES, N_PROGRAMS)
    loading = rng.randn(N_PROGRAMS, N_GENES) * (rng.rand(N_PROGRAMS, N_GENES) < 0.35)
    counts = rng.poisson(np.exp(np.clip(activity @ loading * 0.35 + 2.5, -3, 7)))
    return np.log1p(counts).astype(np.float32)


def make_act():
    return nn.LeakyReLU(0.1) if variant == "fixed" else nn.Sigmoid()


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), make_act()]
    return layers


class ExpressionAE(nn.Module):
    def __init__(self, genes, widths=(128, 96, 64), code=CODE):
        super().__init__()
        self.encoder = nn.Sequential(*mlp([genes, *widths, code]))
        self.decoder = nn.Sequential(*mlp([code, *reversed(widths)]), nn.Linear(widths[0], genes))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Cohort:
    def __init__(self, mat, batch):
        self.mat, self.batch = mat, batch

    def __iter__(self):
        perm = torch.randperm(len(self.mat))
        for i in range(0, len(perm) - self.batch + 1, self.batch):
            yield self.mat[perm[i:i + self.batch]]


rng = np.random.RandomState(100 + seed)
expr = simulate_cohort(rng)
split = int(0.8 * N_SAMPLES)
mu, sd = expr[:split].mean(0), expr[:split].std(0) + 1e-3
expr = torch.from_numpy((expr - mu) / sd)
train_set, valid = Cohort(expr[:split], 64), expr[split:]

ae = ExpressionAE(N_GENES)
step_model = torch.compile(ae, backend=backend) if backend else ae
opt = torch.optim.Adam(ae.parameters(), lr=1.5e-3)
mse = nn.MSELoss()

history, it = [], 0
best = (float("-inf"), None)
for epoch in range(20):
    ae.train()
    for xb in train_set:
        noisy = xb + 0.1 * torch.randn_like(xb)
        opt.zero_grad()
        loss = mse(step_model(noisy), xb)
        loss.backward()
        opt.step()
        history.append(loss.item())
        it += 1
    ae.eval()
    with torch.no_grad():
        rec = ae(valid)
        r2 = 1 - ((rec - valid) ** 2).mean().item() / valid.var(0, unbiased=False).mean().item()
    if r2 > best[0]:
        best = (r2, {k: v.clone() for k, v in ae.state_dict().items()})
    if epoch % 3 == 2:
        print(f"[{epoch + 1:02d}] it {it} mse {np.mean(history[-20:]):.4f} valid R2 {r2:.3f}")

r2 = best[0]
clean = lambda v: v if math.isfinite(v) else None
print(json.dumps({"loss_first": clean(history[0]), "loss_last": clean(float(np.mean(history[-10:]))),
                  "metric_name": "valid_r2", "metric": clean(r2), "ok": bool(r2 > 0.5)}))
