"""Retention time of peptides from the amino acid sequence (LSTM)."""
import os, json, math
import numpy as np
import torch
import torch.nn as nn

VARIANT = os.getenv("CASE_VARIANT", "faulty")
SEED = int(os.getenv("CASE_SEED", "0"))
COMPILE = os.getenv("CASE_COMPILE", "")
np.random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(1)

AA = "ACDEFGHIKLMNPQRSTVWY"
MAXLEN = 22


def synth_peptides(n, rng):
    hydro = rng.normal(0, 1.0, len(AA))
    seqs, rts = [], []
    for _ in range(n):
        L = rng.randint(7, MAXLEN + 1)
        s = rng.randint(0, len(AA), L)
        w = np.ones(L)
        w[:3] = 0.5                       # N-terminal residues count less
        rt = 45 + 9.0 * np.tanh((hydro[s] * w).sum() / 5.0) * 2 + 0.5 * L + rng.normal(0, 0.8)
        seqs.append(s + 1)
        rts.append(rt)
    X = np.zeros((n, MAXLEN), dtype=np.int64)
    for i, s in enumerate(seqs):
        X[i, :len(s)] = s
    return X, np.array([len(s) for s in seqs]), np.array(rts, dtype=np.float32)


class RTNet(nn.Module):
    def __init__(self, emb=16, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(len(AA) + 1, emb, padding_idx=0)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.dense = nn.Linear(2 * hidden, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, tokens):
        mask = (tokens > 0).unsqueeze(-1).float()
        h, _ = self.lstm(self.embed(tokens))
        pooled = (h * mask).sum(1) / mask.sum(1)
        z = torch.relu(self.dense(self.drop(pooled)))
        z = self.out(z)
        if VARIANT != "fixed":
            z = torch.relu(z)
        return z.squeeze(-1)


class Standardizer:
    def fit(self, v):
        self.m, self.s = float(v.mean()), float(v.std())
        return self

    def __call__(self, v):
        return (v - self.m) / self.s

    def inverse(self, v):
        return v * self.s + self.m


rng = np.random.RandomState(SEED + 7)
X, lens, rt = synth_peptides(2600, rng)
ntr = 2200
scaler = Standardizer().fit(rt[:ntr])
Xt, yt = torch.from_numpy(X[:ntr]), torch.from_numpy(scaler(rt[:ntr]))
Xv, yv = torch.from_numpy(X[ntr:]), rt[ntr:]

model = RTNet()
fwd = torch.compile(model, backend=COMPILE) if COMPILE else model
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=5, gamma=0.5)
criterion = nn.MSELoss()


def validate():
    model.eval()
    with torch.no_grad():
        pred = scaler.inverse(model(Xv).numpy())
    model.train()
    r2 = 1 - ((pred - yv) ** 2).sum() / ((yv - yv.mean()) ** 2).sum()
    return float(r2), float(np.median(np.abs(pred - yv)))


curve = []
for epoch in range(11):
    perm = torch.randperm(ntr)
    for k in range(0, ntr - 99, 100):
        idx = perm[k:k + 100]
        opt.zero_grad()
        loss = criterion(fwd(Xt[idx]), yt[idx])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        curve.append(loss.item())
    sched.step()
    r2, mae = validate()
    print(f"epoch {epoch:2d} train mse {np.mean(curve[-22:]):.3f}  val R2 {r2:.3f}  median |err| {mae:.2f} min")

fin = lambda v: float(v) if math.isfinite(v) else None
print(json.dumps({"loss_first": fin(curve[0]), "loss_last": fin(np.mean(curve[-22:])), "metric_name": "val_r2",
                  "metric": fin(r2), "ok": bool(r2 > 0.85)}))
