"""Runs the built command as a user would: arguments in; exit status, stdout and stderr out. Shared by the test_*.py here.

    BERTH           the command (ctest sets it)
    BERTH_SHARED    goldens; absent, tests that need them are skipped by name, with CI=true they fail
    BERTH_MODELS    real model files; likewise
"""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BERTH = os.environ.get("BERTH", str(SOURCE / "build/dev/cli/berth"))
SHARED = Path(os.environ.get("BERTH_SHARED", SOURCE.parent / "shared"))
MODELS = Path(os.environ.get("BERTH_MODELS", Path.home() / ".cache/berth/models"))
STORIES = SOURCE / "tests/data/stories260k"
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Ran:
    def __init__(self, arguments, status, out, err):
        self.arguments, self.status, self.out, self.err = arguments, status, out, err

    def json(self):
        """The one JSON document on stdout; anything before or after it is an error."""
        return json.loads(self.out)


# No measured rates: what is planned here does not depend on whether somebody ran `berth devices` before.
NO_CACHE = tempfile.TemporaryDirectory(prefix="berth-cache-")


def environment(**changes):
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "HF_HOME", "HF_HUB_CACHE")}
    env["XDG_CACHE_HOME"] = NO_CACHE.name
    env.update(changes)
    return env


def berth(*arguments, stdin="", timeout=600, **env):
    arguments = [str(a) for a in arguments]
    done = subprocess.run([BERTH, *arguments], input=stdin.encode(), capture_output=True, timeout=timeout, env=environment(**env))
    return Ran(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


class CommandTest(unittest.TestCase):
    maxDiff = 4000

    def need(self, path):
        """`path`, or a skipped test; with CI=true a failed one."""
        if Path(path).exists():
            return path
        if os.environ.get("CI") == "true":
            self.fail(f"missing in CI: {path}")
        self.skipTest(f"not here: {path}")

    def check(self, ran, status):
        self.assertEqual(ran.status, status, f"berth {' '.join(ran.arguments)}\nstdout: {ran.out[-2000:]}\nstderr: {ran.err[-2000:]}")
        return ran

    def succeeds(self, *arguments, **options):
        return self.check(berth(*arguments, **options), 0)

    def fails(self, status, code, *arguments, **options):
        """Fails alike for people (stderr only) and with --json (one document on stdout). Returns the error."""
        plain = self.check(berth(*arguments, **options), status)
        self.assertEqual(plain.out, "", "a failure leaves stdout empty")
        self.assertIn(f"berth: {code}: ", plain.err)
        ran = self.check(berth(*arguments, "--json", **options), status)
        error = ran.json()["error"]
        self.assertLessEqual({"code", "message", "hints", "details"}, error.keys())
        self.assertEqual(error["code"], code)
        self.assertTrue(error["message"])
        self.assertIsInstance(error["hints"], list)
        self.assertIsInstance(error["details"], dict)
        return error
