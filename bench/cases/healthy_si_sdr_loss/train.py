# two-speaker separation toy: mask estimator over learned filters, loss is the negative SI-SDR in dB
import os, json, math
import numpy as np
import torch
import torch.nn as nn

SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
torch.manual_seed(SEED)
L, FS = 512, 2000


def speakers(n):
    t = torch.arange(L) / FS
    low = torch.empty(n, 1).uniform_(60, 160)
    high = torch.empty(n, 1).uniform_(350, 600)
    env = lambda: 0.6 + 0.4 * torch.sin(2 * math.pi * torch.empty(n, 1).uniform_(3, 9) * t + 6.28 * torch.rand(n, 1))
    a = env() * sum(torch.sin(2 * math.pi * k * low * t + 6.28 * torch.rand(n, 1)) / k for k in (1, 2))
    b = env() * sum(torch.sin(2 * math.pi * k * high * t + 6.28 * torch.rand(n, 1)) / k for k in (1, 1.3))
    gain = 10 ** (torch.empty(n, 1).uniform_(-5, 5) / 20)
    clean = torch.stack([a, gain * b], 1)
    return clean.sum(1) + 0.02 * torch.randn(n, L), clean


def si_sdr(est, ref):
    ref = ref - ref.mean(-1, keepdim=True)
    est = est - est.mean(-1, keepdim=True)
    proj = (est * ref).sum(-1, keepdim=True) / (ref.pow(2).sum(-1, keepdim=True) + 1e-8) * ref
    return 10 * torch.log10((proj.pow(2).sum(-1) + 1e-8) / ((est - proj).pow(2).sum(-1) + 1e-8))


class Separator(nn.Module):
    def __init__(self, f=64):
        super().__init__()
        self.analysis = nn.Conv1d(1, f, 32, stride=8, padding=12, bias=False)
        self.mask = nn.Sequential(nn.GroupNorm(1, f), nn.Conv1d(f, 64, 1), nn.PReLU(), nn.Conv1d(64, 64, 5, padding=2, groups=64),
                                  nn.PReLU(), nn.Conv1d(64, 2 * f, 1), nn.Sigmoid())
        self.synthesis = nn.ConvTranspose1d(f, 1, 32, stride=8, padding=12, bias=False)

    def forward(self, mix):
        w = self.analysis(mix.unsqueeze(1))
        m1, m2 = self.mask(w).chunk(2, 1)
        return torch.cat([self.synthesis(w * m1), self.synthesis(w * m2)], 1)


net = Separator()
model = torch.compile(net, backend=BACKEND) if BACKEND else net
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
hist = []
for step in range(260):
    mix, clean = speakers(12)
    loss = -si_sdr(model(mix), clean).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    hist.append(loss.item())
    if step % 40 == 0:
        print(f"step {step} loss {hist[-1]:.2f} dB")

with torch.no_grad():
    mix, clean = speakers(200)
    gain = (si_sdr(net(mix), clean) - si_sdr(mix.unsqueeze(1).expand(-1, 2, -1), clean)).mean().item()
print(json.dumps({"loss_first": hist[0], "loss_last": float(np.mean(hist[-20:])), "metric_name": "si_sdr_improvement_db",
                  "metric": gain, "ok": gain > 7.0}))
