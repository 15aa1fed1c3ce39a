"""Sensor network: every node must report the mean reading of its own (hidden) group; the adjacency is learned from node descriptors."""
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.manual_seed(SEED)
torch.set_num_threads(1)

NODES, DESC, GROUPS = 16, 12, 4


class World:
    """node descriptors hide a group code in a low-variance subspace"""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.codes = torch.linalg.qr(torch.randn(DESC, DESC, generator=g))[0]
        self.g = g

    def graphs(self, n):
        grp = torch.randint(0, GROUPS, (n, NODES), generator=self.g)
        latent = torch.randn(n, NODES, DESC, generator=self.g) * 1.0
        latent[..., :GROUPS] = 1.2 * F.one_hot(grp, GROUPS) + 0.1 * torch.randn(n, NODES, GROUPS, generator=self.g)
        desc = latent @ self.codes.T
        value = torch.randn(n, NODES, 1, generator=self.g)
        same = (grp[:, :, None] == grp[:, None]).float()
        target = (same @ value) / same.sum(-1, keepdim=True)
        return desc, value, target


class AdaptiveGraph(nn.Module):
    def __init__(self, c_in, c_embed):
        super().__init__()
        self.theta = nn.Linear(c_in, c_embed, bias=False)
        self.phi = nn.Linear(c_in, c_embed, bias=False)
        self.temperature = c_embed ** -0.5

    def forward(self, desc):
        sim = self.theta(desc) @ self.phi(desc).transpose(1, 2) * self.temperature
        return F.softmax(sim, dim=-1)


class GraphConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.self_loop = nn.Linear(c_in, c_out)
        self.neigh = nn.Linear(c_in, c_out, bias=False)

    def forward(self, h, adj):
        return self.self_loop(h) + self.neigh(adj @ h)


class AGCN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.graph = AdaptiveGraph(DESC, 16)
        self.lift = nn.Linear(1, width)
        self.conv1 = GraphConv(width, width)
        self.conv2 = GraphConv(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, desc, value):
        adj = self.graph(desc)
        if VARIANT == "faulty":
            adj = adj.detach()
        h = self.lift(value)
        h = F.relu(self.conv1(h, adj))
        h = F.relu(self.conv2(h, adj))
        return self.head(h), adj


def r2(pred, target):
    return 1 - ((pred - target).pow(2).sum() / (target - target.mean()).pow(2).sum()).item()


world = World(SEED)
desc, value, target = world.graphs(1000)
dv, vv, tv = world.graphs(200)
net = AGCN()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = torch.optim.AdamW([
    {"params": net.graph.parameters(), "lr": 1e-2, "weight_decay": 0.0},
    {"params": [p for n, p in net.named_parameters() if not n.startswith("graph.")], "lr": 4e-3},
])
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=4)

curve = []
for epoch in range(15):
    for idx in torch.randperm(len(desc)).split(50):
        out, adj = model(desc[idx], value[idx])
        loss = F.smooth_l1_loss(out, target[idx], beta=0.5)
        opt.zero_grad()
        loss.backward()
        opt.step()
        curve.append(loss.item())
    net.eval()
    with torch.no_grad():
        out, _ = net(dv, vv)
        score = r2(out, tv)
        plateau.step(F.smooth_l1_loss(out, tv, beta=0.5))
    net.train()
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1:2d} loss {curve[-1]:.4f} val r2 {score:.3f}")

print(json.dumps({"loss_first": curve[0], "loss_last": sum(curve[-20:]) / 20, "metric_name": "val_r2",
                  "metric": score, "ok": score > 0.85}))
