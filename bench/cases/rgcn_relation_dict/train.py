# Relational GCN on a synthetic knowledge graph: classify entities from typed neighbours.
import os, json, random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)
torch.set_num_threads(1)

RELATIONS = ["cites", "authored_by", "same_venue"]
N, FEAT, HID, CLASSES = 1200, 96, 12, 6


def make_graph(rng):
    """6 topics hidden along 6 directions of a wide noisy feature vector. The label of a node is the
    topic most of its cited nodes have; authors and venues add a weaker, shifted vote."""
    topic = rng.integers(0, CLASSES, N)
    dirs = np.linalg.qr(rng.standard_normal((FEAT, CLASSES)))[0].T
    x = 2.2 * dirs[topic] + rng.standard_normal((N, FEAT)) * 0.6
    label = rng.integers(0, CLASSES, N)
    by_topic = [np.flatnonzero(topic == k) for k in range(CLASSES)]
    adj = {}
    for r, rel in enumerate(RELATIONS):
        keep = [0.75, 0.35, 0.1][r]
        rows, cols = [], []
        for i in range(N):
            for _ in range(4):
                if rng.random() < keep:
                    j = rng.choice(by_topic[(label[i] + r) % CLASSES])
                else:
                    j = rng.integers(0, N)
                rows.append(i); cols.append(j)
        a = torch.zeros(N, N)
        a.index_put_((torch.tensor(rows), torch.tensor(cols)), torch.tensor(1.0), accumulate=True)
        adj[rel] = a / a.sum(1, keepdim=True).clamp(min=1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(label), adj


class RelConv(nn.Module):
    def __init__(self, d_in, d_out, relations, dropout=0.1):
        super().__init__()
        self.self_loop = nn.Linear(d_in, d_out)
        weights = {rel: nn.Linear(d_in, d_out, bias=False) for rel in relations}
        self.rel_weight = weights if VARIANT == "faulty" else nn.ModuleDict(weights)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h, adj):
        out = self.self_loop(h)
        for rel, lin in self.rel_weight.items():
            out = out + adj[rel] @ lin(h)
        return self.dropout(out)


class EntityClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = RelConv(FEAT, HID, RELATIONS)
        self.norm = nn.LayerNorm(HID)
        self.head = nn.Sequential(nn.Linear(HID, 24), nn.ReLU(), nn.Linear(24, CLASSES))

    def forward(self, x, adj):
        h = F.elu(self.norm(self.conv1(x, adj)))
        return self.head(h)


class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.net = torch.compile(model, backend=BACKEND) if BACKEND else model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
        self.history = []

    def fit(self, x, y, adj, train_idx, val_idx, epochs):
        for ep in range(epochs):
            self.model.train()
            logits = self.net(x, adj)
            loss = F.cross_entropy(logits[train_idx], y[train_idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.history.append(loss.item())
            if ep % 20 == 0 or ep == epochs - 1:
                print(f"epoch {ep:03d} loss {loss.item():.3f} val acc {self.accuracy(x, y, adj, val_idx):.3f}")

    @torch.no_grad()
    def accuracy(self, x, y, adj, idx):
        self.model.eval()
        return (self.model(x, adj)[idx].argmax(-1) == y[idx]).float().mean().item()


if __name__ == "__main__":
    rng = np.random.default_rng(SEED)
    x, y, adj = make_graph(rng)
    perm = torch.from_numpy(rng.permutation(N))
    train_idx, val_idx = perm[:800], perm[800:]
    tr = Trainer(EntityClassifier())
    tr.fit(x, y, adj, train_idx, val_idx, epochs=120)
    acc = tr.accuracy(x, y, adj, val_idx)
    print(json.dumps({"loss_first": tr.history[0], "loss_last": tr.history[-1],
                      "metric_name": "val_accuracy", "metric": acc, "ok": acc > 0.75}))
