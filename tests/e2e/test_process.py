"""What the process does to its machine: memory it takes, what an interruption leaves behind."""
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from berth_command import BERTH, SMOLLM2, STORIES, CommandTest, environment

MIB = 1 << 20


class Memory(CommandTest):
    def test_peak_of_a_run_is_little_more_than_the_file(self):
        """One copy of the weights: peak RSS <= file + KV cache + workspace + 10 % + 40 MiB."""
        self.need(SMOLLM2)
        ran = self.succeeds("run", SMOLLM2, "-p", "Hello", "-n", "4", "--device-map", "cpu", "-c", "512", "--json").json()["memory"]["cpu"]
        process = subprocess.Popen([BERTH, "run", SMOLLM2, "-p", "Hello", "-n", "4", "--device-map", "cpu", "-c", "512"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        peak = usage.ru_maxrss * 1024
        allowed = 1.1 * (SMOLLM2.stat().st_size + ran["kv"]["measured"] + ran["workspace"]["measured"]) + 40 * MIB
        print(f"peak RSS {peak / MIB:.1f} MiB, allowed {allowed / MIB:.1f} MiB, file {SMOLLM2.stat().st_size / MIB:.1f} MiB")
        if "asan" not in str(BERTH):
            self.assertLessEqual(peak, allowed)


class Interruption(CommandTest):
    def interrupt(self, arguments, cwd, after, by=signal.SIGINT):
        """Sends `by` once `after(process)` holds; returns (exit status, stdout)."""
        process = subprocess.Popen([BERTH, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   cwd=cwd, env=environment())
        try:
            after(process)
            process.send_signal(by)
            out, err = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return process.returncode, out.decode(), err.decode()

    def test_of_an_evaluation_leaves_no_file(self):
        for by in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(by=by):
                self.leaves_no_file(by)

    def leaves_no_file(self, by):
        with tempfile.TemporaryDirectory() as folder:
            ids = Path(folder) / "ids.json"
            ids.write_text(str([1] + [403, 407, 261, 378] * 25000))  # minutes of work
            out = Path(folder) / "logits.safetensors"

            def writing(process):
                deadline = time.monotonic() + 60
                while len(list(Path(folder).iterdir())) < 2 and process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(0.3)

            status, _, err = self.interrupt(["eval", STORIES, "--tokens", ids, "--logits", out], folder, writing, by)
            self.assertEqual(status, 130, err)
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["ids.json"])

    def test_of_a_run_exits_130(self):
        def started(process):
            self.assertTrue(process.stdout.read(1))

        status, _, err = self.interrupt(["run", STORIES, "-p", "Once upon a time", "-c", "16384", "--ignore-eos"], None, started)
        self.assertEqual(status, 130, err)


if __name__ == "__main__":
    unittest.main()
