"""`python -m neuraldbg` is the `neuraldbg` program."""

import os
import sys

if __name__ == "__main__":
    # Python put the working directory first, where a script's `queue.py` or `types.py` would
    # take the place of what we import ourselves. `run` puts the script's folder there.
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib is not safe yet

    from neuraldbg.cli import main

    sys.exit(main())
