"""Other tools that watch a training, as their documentation says, each in its own environment.

    python bench/peers.py DIR [NAME ...]      # make the environments, a few hundred MB each
    python bench/overhead.py --peers DIR --variants none control default dense wandb ...

Where a tool does not run with a workload, the row says why.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads import Workload

ROOT = Path(__file__).resolve().parent.parent
# What is installed beside PyTorch and what the workloads need. Cockpit asks for `pkg_resources`.
PACKAGES = {
    "wandb": ("wandb==0.31.0",),
    "wandb_all": ("wandb==0.31.0",),
    "trainscope": ("trainscope==1.8.1",),
    "torchmortem": ("torchmortem==0.1.1",),
    "underflow": ("transformers==5.24.0",),
    "cockpit": ("cockpit-for-pytorch==1.0.2", "setuptools<81"),
}


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder to write to, which is the current one as long as it lasts."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield Path(name)


@contextlib.contextmanager
def _watched_by_wandb(work: Workload, **settings: Any) -> Iterator[None]:
    import wandb

    with _folder() as folder:
        run = wandb.init(mode="offline", dir=str(folder), settings={"silent": True})
        run.watch(work.model, **settings)
        work.after.append(lambda loss: run.log({"loss": loss.item()}))
        yield
        run.finish()


def wandb(work: Workload) -> contextlib.AbstractContextManager[None]:
    """`wandb.watch` as it comes: gradients at every thousandth step; the loss at each."""
    return _watched_by_wandb(work)


def wandb_all(work: Workload) -> contextlib.AbstractContextManager[None]:
    """`wandb.watch` of gradients and parameters at every step."""
    return _watched_by_wandb(work, log="all", log_freq=1)


@contextlib.contextmanager
def trainscope(work: Workload) -> Iterator[None]:
    """Trainscope with its defaults, told of each step between backward pass and update."""
    from trainscope import TrainScope
    from trainscope.core.config import TrainScopeConfig

    with _folder() as folder:
        scope = TrainScope(
            work.model, work.optimizer, config=TrainScopeConfig(run_dir=str(folder))
        ).attach()
        work.before_update.append(lambda loss: scope.step(loss.item()))
        yield
        scope.detach()


@contextlib.contextmanager
def torchmortem(work: Workload) -> Iterator[None]:
    """Torchmortem with its default sampling, and its report at the end."""
    from torchmortem import Autopsy

    with _folder(), Autopsy(work.model, optimizer=work.optimizer) as autopsy:
        work.after.append(lambda loss: autopsy.step(loss=loss.item()))
        yield
        autopsy.report("report.html")


@contextlib.contextmanager
def underflow(work: Workload) -> Iterator[None]:
    """The overflow and underflow detection of Transformers, which reads each module's tensors."""
    from transformers.debug_utils import DebugUnderflowOverflow

    DebugUnderflowOverflow(work.model)
    yield


@contextlib.contextmanager
def cockpit(work: Workload) -> Iterator[None]:
    """Cockpit with its `economy` instruments, at every step, as its examples have it."""
    from backpack import extend
    from cockpit import Cockpit
    from cockpit.utils.configuration import configuration
    from torch import nn

    extend(work.model)
    criterion, each = extend(nn.CrossEntropyLoss()), nn.CrossEntropyLoss(reduction="none")
    cock = Cockpit(work.model.parameters(), quantities=configuration("economy"))
    count = iter(range(sys.maxsize))

    def forward_backward() -> Any:
        logits, targets = work.predict()
        loss, step = criterion(logits, targets), next(count)
        info = {
            "batch_size": len(targets),
            "individual_losses": each(logits, targets),
            "loss": loss,
            "optimizer": work.optimizer,
        }
        with cock(step, info=info):
            loss.backward(create_graph=cock.create_graph(step))
        return loss

    work.forward_backward = forward_backward
    yield


PEERS = {f.__name__: f for f in (wandb, wandb_all, trainscope, torchmortem, underflow, cockpit)}


def python_of(folder: Path, name: str) -> str:
    """The interpreter that a tool's variant runs under."""
    return str(folder / PACKAGES[name][0].partition("==")[0] / "bin" / "python")


def install(folder: Path, name: str) -> None:
    """Make the environment of a tool, unless it is there."""
    python = Path(python_of(folder, name))
    if python.exists():
        return
    venv.create(python.parents[1], with_pip=True)
    pins = [x for x in (ROOT / "constraints.txt").read_text().splitlines() if x[:7] == "torch=="]
    packages = (*pins, *PACKAGES[name], "-e", f"{ROOT}[torch]")
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}")
    o = parser.parse_args()
    for name in o.names or PEERS:
        print(name, flush=True)
        install(o.folder, name)


if __name__ == "__main__":
    main()
