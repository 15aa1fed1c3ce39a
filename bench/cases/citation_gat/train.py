"""Semi-supervised node classification with graph attention (full batch)."""
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
SEED = int(os.environ.get("CASE_SEED", "0"))
FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
np.random.seed(SEED)
torch.manual_seed(SEED)


def load_citations(n=1400, classes=6, vocab=300, per_class=20):
    """Papers with sparse bags of words; a few entries of the index have no text and no references."""
    labels = np.random.randint(0, classes, n)
    topic = np.random.dirichlet(np.full(vocab, 0.08), classes)
    common = np.random.dirichlet(np.full(vocab, 0.4))
    words = np.zeros((n, vocab))
    for i in range(n):
        mix = 0.35 * topic[labels[i]] + 0.65 * common
        words[i, np.random.choice(vocab, np.random.randint(8, 20), p=mix)] = 1.0
    src, dst = [], []
    for i in range(n):
        for _ in range(np.random.poisson(2)):
            pool = np.flatnonzero(labels == labels[i]) if np.random.rand() < 0.75 else np.arange(n)
            src.append(i)
            dst.append(np.random.choice(pool))
    perm = np.random.permutation(n)
    stubs = perm[-12:]
    words[stubs] = 0.0
    keep = ~(np.isin(src, stubs) | np.isin(dst, stubs))
    src, dst = np.array(src)[keep], np.array(dst)[keep]
    edges = np.concatenate([np.stack([src, dst]), np.stack([dst, src]), np.tile(np.arange(n), (2, 1))], axis=1)
    train = np.concatenate([[i for i in perm[:-400] if labels[i] == c][:per_class] for c in range(classes)])
    return words, labels, edges, train, perm[-400:-12]


def preprocess_features(x):
    with np.errstate(divide="ignore", invalid="ignore"):
        x = x / x.sum(1, keepdims=True)
    if FIXED:
        x[np.isnan(x)] = 0.0
    return 5.0 * x


class GraphAttention(nn.Module):
    def __init__(self, f_in, f_out, heads, concat, drop):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(heads, f_in, f_out))
        self.att_self = nn.Parameter(torch.empty(heads, f_out))
        self.att_neigh = nn.Parameter(torch.empty(heads, f_out))
        self.bias = nn.Parameter(torch.zeros(heads * f_out if concat else f_out))
        for p in (self.kernel, self.att_self, self.att_neigh):
            nn.init.xavier_uniform_(p)
        self.concat, self.drop = concat, drop

    def forward(self, x, edges):
        s, d = edges
        n = x.shape[0]
        h = torch.einsum("nf,hfo->nho", F.dropout(x, self.drop, self.training), self.kernel)
        e = F.leaky_relu((h * self.att_self).sum(-1)[d] + (h * self.att_neigh).sum(-1)[s], 0.2).exp()
        total = e.new_zeros(n, e.shape[1]).index_add(0, d, e)
        a = F.dropout(e / total[d], self.drop, self.training)
        out = torch.zeros_like(h).index_add(0, d, a.unsqueeze(-1) * h[s])
        return (out.flatten(1) if self.concat else out.mean(1)) + self.bias


class GAT(nn.Module):
    def __init__(self, f_in, classes, hidden=8, heads=6, drop=0.3):
        super().__init__()
        self.gat1 = GraphAttention(f_in, hidden, heads, True, drop)
        self.gat2 = GraphAttention(hidden * heads, classes, 1, False, drop)

    def forward(self, x, edges):
        return self.gat2(F.elu(self.gat1(x, edges)), edges)


def run():
    words, labels, edges, train, test = load_citations()
    x = torch.tensor(preprocess_features(words), dtype=torch.float32)
    y = torch.from_numpy(labels)
    edges = torch.from_numpy(edges)
    train, test = torch.from_numpy(train), torch.from_numpy(test)
    net = GAT(x.shape[1], int(y.max()) + 1)
    backend = os.environ.get("CASE_COMPILE", "")
    model = torch.compile(net, backend=backend) if backend else net
    opt = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=5e-4)
    curve = []
    for epoch in range(1, 141):
        model.train()
        opt.zero_grad()
        loss = F.cross_entropy(model(x, edges)[train], y[train])
        loss.backward()
        opt.step()
        curve.append(loss.item())
        if epoch == 1 or epoch % 20 == 0:
            model.eval()
            with torch.no_grad():
                acc = (model(x, edges)[test].argmax(1) == y[test]).float().mean().item()
            print(f"Epoch {epoch}: loss {curve[-1]:.4f} test acc {acc:.4f}")
    f = lambda v: v if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(curve[0]), "loss_last": f(curve[-1]), "metric_name": "test_accuracy",
                      "metric": f(acc), "ok": bool(acc > 0.6 and math.isfinite(curve[-1]))}))


if __name__ == "__main__":
    run()
