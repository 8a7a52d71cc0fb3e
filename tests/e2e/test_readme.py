"""The README's tour, tried: every ```console block is run and its output compared. "..." stands for anything, alone on a line for any lines."""
import re
import shlex
import subprocess
import unittest

from berth_command import BERTH, SOURCE, CommandTest, environment


def blocks():
    """(command, expected lines) of each command of the README's console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```", (SOURCE / "README.md").read_text(), re.M | re.S):
        command, expected = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, expected
                command, expected = line[2:], []
            else:
                expected.append(line)
        yield command, expected


def pattern(expected):
    return re.compile("".join(r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n" for line in expected))


class Readme(CommandTest):
    def test_tour_prints_what_it_says(self):
        commands = list(blocks())
        self.assertGreaterEqual(len(commands), 5)
        for command, expected in commands:
            with self.subTest(command):
                words = shlex.split(command)
                self.assertEqual(words[0], "berth")
                ran = subprocess.run([BERTH, *words[1:]], cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     stdin=subprocess.DEVNULL, env=environment())
                self.assertRegex(ran.stdout, "^" + pattern(expected).pattern + "$")

    def test_layer_table_is_current(self):
        table = subprocess.run(["python3", SOURCE / "tools/check_layers.py", SOURCE, "--table"], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL, check=True).stdout
        self.assertIn(table, (SOURCE / "docs/architecture.md").read_text(), "print it anew: tools/check_layers.py --table")

    def test_links_lead_somewhere(self):
        for page in [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *(SOURCE / "docs").rglob("*.md")]:
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")


if __name__ == "__main__":
    unittest.main()
