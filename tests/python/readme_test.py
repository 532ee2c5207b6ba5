"""What apps/python/README.md shows runs."""

import contextlib
import io
import os
import pathlib
import re
import tempfile
import unittest

from support import TASKS

README = pathlib.Path(__file__).parents[2] / "apps" / "python" / "README.md"


def run(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(README), "exec"), {})
    return out.getvalue()


class Readme(unittest.TestCase):
    def setUp(self):
        self.blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        self.addCleanup(os.chdir, os.getcwd())

    def test_trains_and_answers(self):
        with tempfile.TemporaryDirectory() as scratch:
            tiny = f'"training.max_steps=5", "generation.num_beams=5", "output_dir={scratch}/run"'
            code = self.blocks[0].replace("configs/multi30k_small.yaml", "translation.yaml")
            self.assertIn('"training.max_steps=500"', code)
            os.chdir(TASKS)
            self.assertRegex(run(code.replace('"training.max_steps=500"', tiny)), r"^5 \d+\.\d+\n$")

    def test_writes_a_layer(self):
        checked, loss = run(self.blocks[1]).splitlines()
        self.assertIn("GradcheckResult: passed", checked)
        self.assertLess(float(loss), 0.01)


if __name__ == "__main__":
    unittest.main()
