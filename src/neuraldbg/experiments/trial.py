"""The process of one trial: `python -m neuraldbg.experiments.trial SPEC`.

Runs the script as `neuraldbg run` would, with one thing changed, and ends by itself after
the step it was told.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any, Final

from neuraldbg.cli import launch
from neuraldbg.cli.arrival import upon
from neuraldbg.cli.signals import Terminator
from neuraldbg.config import DEFAULT_BUDGET
from neuraldbg.experiments.redirect import Redirect
from neuraldbg.experiments.seeding import Shift
from neuraldbg.experiments.spec import Spec, Status

# Steps after which a change that is possible has been made: it concerns the model, the
# optimizer or what each step does.
OCCASIONS: Final = 20


class Trial:
    """One trial, from before the script's first line to its end.

    Args:
        spec: What to do.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._pid = os.getpid()
        self._session: Any = None
        self._action: Any = None
        self._trouble = ""
        keep = (Path(spec.out).parent, Path(spec.status).parent)
        self._redirect = Redirect(Path(spec.cwd), Path(spec.home), keep)
        self._seeds = Shift(spec.seed)
        self._done = False

    def run(self) -> None:
        """Run the script to its end, or to the step at which we stop."""
        spec = self._spec
        self._redirect.install()
        self._seeds.python()
        upon("numpy", lambda: self._seeds.numpy(sys.modules["numpy"]))
        upon("torch", self._begin)
        terminator = Terminator(lambda: self.conclude("interrupted", None))
        terminator.install()
        try:
            launch.execute(launch.Target(spec.name, spec.args, spec.module))
        except SystemExit as error:
            failed = error.code not in (None, 0)
            self.conclude("exception" if failed else "ok", error if failed else None)
        except BaseException as error:
            self.conclude("exception", error)
            raise
        self.conclude("ok", None)

    def _begin(self) -> None:
        """Observe, seed and intervene, as soon as torch is imported."""
        from neuraldbg.torch import attach

        spec = self._spec
        command = [*(["-m"] if spec.module else []), spec.name, *spec.args]
        self._redirect.save(sys.modules["torch"])
        self._session = attach.start(Path(spec.out), DEFAULT_BUDGET, False, command)  # noqa: FBT003
        self._session.each_step(self._step)
        if spec.look_from is not None:
            self._session.look_from(spec.look_from)
        self._seeds.torch(sys.modules["torch"])
        if spec.intervention:
            try:
                self._intervene()
            except Exception as error:  # said in the status, judged by the runner
                self._trouble = f"{type(error).__name__}: {error}"

    def _intervene(self) -> None:
        from neuraldbg.torch import boundaries
        from neuraldbg.torch.interventions import Context, ear_of, make

        known = Context.of(self._spec.context or {})
        self._action = make(self._spec.intervention, known)
        boundaries.listen(ear_of(self._action))
        self._action.begin()

    def _step(self, step: int, loss: float) -> None:
        ends = step >= self._spec.stop or self._idles(step)
        if not ends or os.getpid() != self._pid:
            return
        self.conclude("ok", None)
        for worker in multiprocessing.active_children():
            worker.terminate()
        # Not `sys.exit`: the script's own clean-up may take as long as its training.
        os._exit(0)

    def _idles(self, step: int) -> bool:
        """Whether there is nothing to change in this script, so that the trial says nothing."""
        action = self._action
        if action is None or action.applied or action.patient:
            return False
        return bool(step >= action.context.began + OCCASIONS)

    def conclude(self, finished: str, error: BaseException | None) -> None:
        """Complete the run file and leave word; once."""
        if self._done or os.getpid() != self._pid:
            return
        self._done = True
        try:
            if self._session is not None:
                self._session.finish(finished, error)
        finally:
            applied = int(self._action.applied) if self._action is not None else 0
            status = Status(applied, self._trouble, tuple(self._redirect.moved))
            status.write(Path(self._spec.status))


def main() -> None:
    """Run the trial that the first argument describes."""
    spec = Spec.read(Path(sys.argv[1]))
    os.chdir(spec.cwd)
    Trial(spec).run()


if __name__ == "__main__":
    main()
