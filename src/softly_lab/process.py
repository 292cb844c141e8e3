"""`python -m softly_lab.process` is the command `softly` in one of the processes of a run.

Threads of gloo outlive their group where DistributedDataParallel was used, and abort when they ask for an interpreter
that has begun to close. So a process of several leaves without closing it.
"""

import os
import sys
import time
import traceback

from softly_lab.cli import app

code: int | str | None = None
try:
    app()
except SystemExit as end:
    code = end.code
except BaseException:
    traceback.print_exc()
    code = 1
if isinstance(code, str):
    sys.stderr.write(f"{code}\n")
    code = 1
sys.stdout.flush()
sys.stderr.flush()
if code and os.environ.get("RANK", "0") != "0":
    time.sleep(5.0)  # the first process speaks for all, and is ended when another one has failed
os._exit(code or 0)
