"""A streaming job for the kill tests: `stream_job.py FOLDER MASTER` joins two file streams into a file sink.

Continues from the checkpoint in FOLDER if there is one; writes `done` there when all files are read.
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
    conf = {"spark__executor__memory": "1g", "spark__task__maxFailures": "8"}
    spark = local_session(master, **conf)
    seed = int((folder / "seed").read_text())
    streams, how = stream_kills.job(seed)
    r, s = (sc.read(spark, folder, side) for side in "rs")
    sc.run(ms.window_join(r, s, **streams.arguments(), device="cpu", **how), folder)
    (folder / "done").touch()
    spark.stop()


if __name__ == "__main__":
    main()
