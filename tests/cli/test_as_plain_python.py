"""`neuraldbg run` against plain Python, side by side."""

from __future__ import annotations

import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from .programs import PLAIN, RUN, call

SCRIPTS = {
    "what a script sees of itself": """
        import os, sys
        print(sys.argv, sys.path[0], os.getcwd())
        print(__name__, __file__, __spec__, __package__, __doc__, __cached__, __builtins__)
        print(type(__loader__).__name__, __loader__.name, __loader__.path, sorted(globals()))
        print(sys.modules["__main__"].__dict__ is globals(), __import__("__main__").__file__)
    """,
    "a docstring": '''
        """What it is for."""
        print(__doc__)
    ''',
    "annotations are not postponed": """
        x: int = 3
        def f(y: len): pass
        print(__annotations__, f.__annotations__)
    """,
    "pickling of its own classes": """
        import pickle
        class Thing:
            def __init__(self): self.x = 3
        print(pickle.loads(pickle.dumps(Thing())).x, Thing.__module__, Thing.__qualname__)
    """,
    "an exception": """
        def inner(): raise ValueError("no such luck")
        def outer():
            try: {}["key"]
            except KeyError as error: raise RuntimeError("worse") from error
        try: inner()
        finally: outer()
    """,
    "an exception without a message": "raise KeyError",
    "an exception group": "raise ExceptionGroup('many', [ValueError(1), TypeError(2)])",
    "its own hook for exceptions": """
        import sys, traceback
        def hook(kind, value, trace):
            print("hooked", kind.__name__, value, [f.name for f in traceback.extract_tb(trace)])
        sys.excepthook = hook
        def f(): raise OSError("disk")
        f()
    """,
    "a syntax error": "def f(:\\n    pass",
    "an indentation error": "if True:\\nprint(1)",
    "exit 0": "import sys; print('bye'); sys.exit(0)",
    "exit 3": "import sys; sys.exit(3)",
    "exit with nothing": "raise SystemExit",
    "exit with a text": "import sys; sys.exit('something is missing')",
    "exit with an object": "import sys; sys.exit([1, 2])",
    "exit by os._exit": "import os, sys; sys.stdout.write('lost'); os._exit(7)",
    "exit from a function at exit": """
        import atexit, sys
        atexit.register(lambda: print("last words", sys.argv, sys.modules["__main__"].__file__))
        sys.exit(2)
    """,
    "output on both streams": """
        import sys
        print("result")
        print("notice", file=sys.stderr)
        sys.stdout.buffer.write(bytes(range(65, 75)))
    """,
    "a thread that outlives the main one": """
        import threading, time
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread done"))).start()
        print("main done")
    """,
    "a forked child that exits by itself": """
        import os, sys
        sys.stdout.flush()
        if os.fork() == 0:
            print("child"); sys.exit(5)
        print("parent", os.waitstatus_to_exitcode(os.wait()[1]))
    """,
    "multiprocessing": """
        import multiprocessing as mp
        class Job:
            def __call__(self, x): return x * x
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with mp.get_context(method).Pool(1) as pool:
                    print(method, pool.map(Job(), [1, 2, 3]))
    """,
    "a module next to the script": "import neighbour; print(neighbour.__name__)",
    "a module that shadows the standard library": "import textwrap; print(textwrap.MINE)",
    "changed import path and working directory": """
        import os, sys
        sys.path.insert(0, "elsewhere"); os.chdir("/"); sys.argv.append("more")
        print(sys.path[0])
    """,
    "warnings as errors": """
        import warnings
        warnings.simplefilter("error")
        print("quiet")
    """,
    "a deleted main module": "import sys; del sys.modules['__main__']; print('gone')",
    "a closed stderr": "import sys; sys.stderr.close(); print('still here')",
    "a latin-1 source": "# -*- coding: latin-1 -*-\\nprint(ascii('\\u00e9'))",
}


def lay_out(folder: Path, source: str) -> None:
    """A folder with a script `train.py` and two modules beside it."""
    text = textwrap.dedent(source.replace("\\n", "\n")).lstrip("\n")
    coding = "latin-1" if "latin-1" in text else "utf-8"
    (folder / "train.py").write_text(text, encoding=coding)
    (folder / "neighbour.py").write_text("")
    (folder / "textwrap.py").write_text("MINE = True\n")
    (folder / "argparse.py").write_text("raise SystemExit('not for you')\n")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_cannot_tell_the_difference(name: str, tmp_path: Path) -> None:
    lay_out(tmp_path, SCRIPTS[name])
    words = ["train.py", "--json", "x y", "--", "-m", ""]
    plain, ours = call([*PLAIN, *words], tmp_path), call([*RUN, *words], tmp_path)
    assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err)
    assert (tmp_path / ".neuraldbg").exists() is False


@pytest.mark.parametrize(
    "words",
    [
        ["sub/train.py"],
        ["./sub/../sub/train.py", "1"],
        ["link.py"],
        ["sub/package"],
        ["app.zip", "a"],
        ["sub/train.pyc"],
        ["-m", "sub.train", "--quiet"],
        ["-msub.train", "-x"],
        ["-m", "sub.package", "-m"],
        ["-m", "train"],
        ["-m", "sub"],
        ["-m", "sub.failing"],
        ["sub"],
    ],
    ids=" ".join,
)
def test_every_way_to_name_a_program(words: list[str], tmp_path: Path) -> None:
    show = (
        "import sys\nprint(sys.argv, sys.path[0], __name__, __file__, __package__)\n"
        "print(__spec__.name if __spec__ else None)\n"
    )
    sub = tmp_path / "sub"
    (sub / "package").mkdir(parents=True)
    (sub / "train.py").write_text(show)
    (sub / "failing.py").write_text(show + "def f(): raise OSError\nf()\n")
    (sub / "package" / "__main__.py").write_text(show)
    (tmp_path / "link.py").symlink_to("sub/train.py")
    call([sys.executable, "-m", "compileall", "-b", "-q", "sub/train.py"], tmp_path)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", show)
    plain, ours = call([*PLAIN, *words], tmp_path), call([*RUN, *words], tmp_path)
    assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err)


def test_a_safe_path_stays_safe(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.path[0])")
    env = {"PYTHONSAFEPATH": "1"}
    plain = call([*PLAIN, "train.py"], tmp_path, env)
    assert call([*RUN, "train.py"], tmp_path, env).out == plain.out


def test_modules_that_a_script_has_not_imported_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys; print({'torch', 'numpy', 'sqlite3'} & set(sys.modules))"
    )
    assert call([*RUN, "train.py"], tmp_path).out == "set()\n"


def test_switched_off_it_only_runs_the_script(tmp_path: Path) -> None:
    lay_out(tmp_path, SCRIPTS["an exception"])
    env = {"NEURALDBG_MODE": "off"}
    plain = call([*PLAIN, "train.py"], tmp_path)
    ours = call([*RUN, "--json", "d.json", "train.py"], tmp_path, env)
    assert (ours.code, ours.out, ours.err) == (plain.code, plain.out, plain.err)
    assert ours.notices == ""
    assert not (tmp_path / "d.json").exists()
