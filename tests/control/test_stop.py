"""A program that is asked to stop in the middle of a long search ends within seconds."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from serving import FILE, Running, written

LONG = FILE.replace("budget = 4", "budget = 10000\nfutures = 64").replace('"trimtab"', '"trimtab-plus"')
LONG = LONG.replace('policy = "fifo"', 'policy = "tiresias"')


def test_a_stop_does_not_wait_for_the_search(tmp_path: Path) -> None:
    server = Running(tmp_path, "auto")
    server.process.kill()
    server.process.wait()
    server.path.write_text(written(tmp_path, "auto", server.port, LONG).read_text())
    server.process = server.start()
    try:
        server.wait(lambda status: status["events"] > 0)
        time.sleep(3)
        assert server.status()["last_round"] is None  # it searches still
        asked = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert time.monotonic() - asked < 30
        assert '"event": "stopped"' in server.log.read_text()
    finally:
        server.process.kill()
        server.process.wait()
