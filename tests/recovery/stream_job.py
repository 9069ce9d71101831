"""A streaming job that is to be killed: `stream_job.py FOLDER MASTER`, two file streams joined into a file sink.

Goes on from the checkpoint in FOLDER if there is one; leaves `done` there when all files were read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millrace import spark as ms
from tests.recovery import stream_kills
from tests.spark import stream_cases as sc
from tests.spark.sessions import local_session


def main() -> None:
    folder, master = Path(sys.argv[1]), sys.argv[2]
    settings = {"spark__executor__memory": "1g", "spark__task__maxFailures": "8"}
    spark = local_session(master, **settings)
    seed = int((folder / "seed").read_text())
    streams, how = stream_kills.job(seed)
    r, s = (sc.read(spark, folder, side) for side in "rs")
    sc.run(ms.window_join(r, s, **streams.arguments(), device="cpu", **how), folder)
    (folder / "done").touch()
    spark.stop()


if __name__ == "__main__":
    main()
